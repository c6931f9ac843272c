package kerneltest_test

import (
	"slices"
	"strings"
)

// permitted is where this kernel may differ from ipykernel. Each rule takes the difference out of
// what the two said to one id, so that what is left must be equal.
var permitted = []struct {
	name, why string
	level     func(ours, plain *answers)
}{
	{
		"status beside",
		"completion and inspection of a magic's line do not wait for cells, so the statuses of several requests under one id may mix; as many end",
		func(ours, plain *answers) {
			ends := func(a *answers) int { return strings.Count(strings.Join(a.status, " "), "idle") }
			if n := ends(plain); n > 1 && ends(ours) == n {
				ours.status, plain.status = nil, nil
			}
		},
	},
	{
		"busy repeated",
		"a client takes the last status for the kernel's: a request that ends beside a running cell is followed by that cell's busy",
		func(ours, plain *answers) {
			for _, a := range []*answers{ours, plain} {
				a.status = slices.Compact(a.status)
			}
		},
	},
	{
		"reply lost",
		"ipykernel leaves malformed execute_requests without a reply, and some without any sign; here they end with an error",
		func(ours, plain *answers) {
			for {
				at := slices.IndexFunc(ours.replies, isLost)
				if at < 0 || len(ours.replies) <= len(plain.replies) {
					return
				}
				ours.replies = slices.Delete(ours.replies, at, at+1)
				if at = slices.IndexFunc(ours.said, isLost); at >= 0 {
					ours.said = slices.Delete(ours.said, at, at+1)
				}
				if n := len(ours.status); n > len(plain.status) && n >= 2 {
					ours.status = ours.status[:n-2]
				}
			}
		},
	},
	{
		"answers beside",
		"completion and inspection of a magic's line do not wait for cells, nor do comms for a magic, so under one id they may overtake a cell",
		func(ours, plain *answers) {
			for _, a := range []*answers{ours, plain} {
				slices.Sort(a.replies)
				slices.Sort(a.said)
			}
		},
	},
	{
		"status of a comm",
		"ipykernel gives a comm no status while an asynchronous cell runs, and a magic here may run in that cell's place or before it",
		func(ours, plain *answers) {
			if len(ours.replies)+len(plain.replies) == 0 && len(ours.status)%2 == 0 && (len(ours.status) == 0 || len(plain.status) == 0) {
				ours.status, plain.status = nil, nil
			}
		},
	},
	{
		"lines of an interrupted magic",
		"how many there are depends on the moment",
		func(ours, plain *answers) {
			for _, a := range []*answers{ours, plain} {
				if strings.HasPrefix(a.stdout, "toy 0\n") && slices.ContainsFunc(a.replies, func(r string) bool { return strings.HasSuffix(r, "KeyboardInterrupt") }) {
					a.stdout = "toy 0\n"
				}
			}
		},
	},
}

func isLost(line string) bool { return strings.HasSuffix(line, "ReplyLost") }

// onlyHere is whether ipykernel may have given no sign at all: of a cell that it cannot read, which
// here ends with an error, or is aborted where it waited behind a failed one.
func onlyHere(a *answers) bool {
	return !slices.ContainsFunc(a.replies, func(r string) bool { return !isLost(r) && r != "execute_reply aborted" })
}
