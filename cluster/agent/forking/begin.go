// Package forking holds the small processes that an agent starts, and that outlive it for
// a moment: a guard, and where no Python is wanted a forker. Both are this program again.
//
// They begin before the rest of the program is initialised, as what runc and Docker
// execute of themselves does: an executor of commands starts both before its first task,
// and what the other packages need for their beginning is most of their time. So this
// package, and all that it imports, imports nothing that begins late, such as net: a
// test says so.
package forking

import (
	"fmt"
	"math"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// Words by which this program is started as one of them.
const (
	GuardCommand  = "guard"
	ForkerCommand = "forker"
)

// ThisProgram is the path by which a process starts another of its own program.
const ThisProgram = "/proc/self/exe"

// init begins and ends a guard or a forker: see the package's comment.
func init() {
	if len(os.Args) < 2 || len(os.Args) > 2 && strings.HasPrefix(os.Args[2], "-h") || len(os.Args) > 2 && os.Args[2] == "--help" {
		return // a person asks for help
	}
	switch os.Args[1] {
	case GuardCommand:
		keepDescriptors()
		os.Exit(guardMain(os.Args[2:]))
	case ForkerCommand:
		keepDescriptors()
		if err := forkerMain(os.Args[2:]); err != nil {
			fmt.Fprintln(os.Stderr, "tfcluster "+ForkerCommand+":", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
}

// keepDescriptors keeps what the caller left open from what is executed here. A system
// without close_range (Linux before 5.11) passes them on.
func keepDescriptors() {
	_ = unix.CloseRange(3, math.MaxInt32, unix.CLOSE_RANGE_CLOEXEC)
}
