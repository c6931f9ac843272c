package kerneltest_test

import (
	"slices"
	"strings"
)

// permitted lists the accepted differences from ipykernel. Each rule removes a difference from
// the answers to one ID, so that the rest must be equal.
var permitted = []struct {
	name, why string
	level     func(ours, plain *answers)
}{
	{
		"status beside",
		"completion and inspection of a magic's line do not wait for cells, so the statuses of several requests under one " +
			"id may mix; as many end",
		func(ours, plain *answers) {
			ends := func(a *answers) int { return strings.Count(strings.Join(a.status, " "), "idle") }
			if n := ends(plain); n > 1 && ends(ours) == n {
				ours.status, plain.status = nil, nil
			}
		},
	},
	{
		"busy repeated",
		"a client takes the last status for the kernel's: a request that ends during a running cell is followed by that " +
			"cell's busy",
		func(ours, plain *answers) {
			for _, a := range []*answers{ours, plain} {
				a.status = slices.Compact(a.status)
			}
		},
	},
	{
		"reply lost",
		"ipykernel leaves malformed execute_requests without a reply, and some without any message; " +
			"here they end with an error",
		func(ours, plain *answers) {
			for {
				at := slices.IndexFunc(ours.replies, isLost)
				if at < 0 || len(ours.replies) <= len(plain.replies) {
					return
				}
				ours.replies = slices.Delete(ours.replies, at, at+1)
				if at = slices.IndexFunc(ours.published, isLost); at >= 0 {
					ours.published = slices.Delete(ours.published, at, at+1)
				}
				if n := len(ours.status); n > len(plain.status) && n >= 2 {
					ours.status = ours.status[:n-2]
				}
			}
		},
	},
	{
		"concurrent answers",
		"completion and inspection of a magic's line do not wait for cells, comms do not wait for a magic, " +
			"so with one ID they may overtake a cell",
		func(ours, plain *answers) {
			for _, a := range []*answers{ours, plain} {
				slices.Sort(a.replies)
				slices.Sort(a.published)
			}
		},
	},
	{
		"status of a comm",
		"ipykernel publishes no status for a comm while an asynchronous cell runs, and here a magic may run instead of or " +
			"before that cell",
		func(ours, plain *answers) {
			if len(ours.replies)+len(plain.replies) == 0 && len(ours.status)%2 == 0 &&
				(len(ours.status) == 0 || len(plain.status) == 0) {
				ours.status, plain.status = nil, nil
			}
		},
	},
	{
		"lines of an interrupted magic",
		"their number depends on the moment",
		func(ours, plain *answers) {
			for _, a := range []*answers{ours, plain} {
				if strings.HasPrefix(a.stdout, "toy 0\n") &&
					slices.ContainsFunc(a.replies, func(r string) bool { return strings.HasSuffix(r, "KeyboardInterrupt") }) {
					a.stdout = "toy 0\n"
				}
			}
		},
	},
}

func isLost(line string) bool { return strings.HasSuffix(line, "ReplyLost") }

// onlyHere reports whether ipykernel may have sent no message at all: for a cell that it cannot
// parse, which here ends with an error, or is aborted if it waited after a failed one.
func onlyHere(a *answers) bool {
	return !slices.ContainsFunc(a.replies, func(r string) bool { return !isLost(r) && r != "execute_reply aborted" })
}
