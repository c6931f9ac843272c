package reduce

// The compiler makes no vector instructions. Gradients are float32: these loops add four elements by one instruction
// that every amd64 has (ADDPS of SSE), with the same rounding. n is a multiple of 8, and not 0. out may be an operand.

//go:noescape
func sumTwoFloat32(out, a, b *float32, n int)

//go:noescape
func sumFourFloat32(out, a, b, c, d *float32, n int)

// sumVectors sets the first elements of out to the sum of two or four vectors, which are as long, and returns how many.
func sumVectors(out []float32, in ...[]float32) int {
	n := len(out) &^ 7
	switch {
	case n == 0:
		return 0
	case len(in) == 2:
		sumTwoFloat32(&out[0], &in[0][:n][0], &in[1][:n][0], n)
	case len(in) == 4:
		sumFourFloat32(&out[0], &in[0][:n][0], &in[1][:n][0], &in[2][:n][0], &in[3][:n][0], n)
	default:
		return 0
	}
	return n
}
