//go:build !amd64

package reduce

// sumVectors adds nothing where there are no loops in assembly: the caller adds the rest.
func sumVectors(out []float32, in ...[]float32) int { return 0 }
