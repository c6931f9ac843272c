// Package forking implements two small processes that an agent starts from this program, and
// that outlive it shortly: a guard, which kills what remains of tasks, and a forker, which
// starts tasks that need no Python.
//
// They run in init, before the rest of the program is initialised, as runc and Docker do: an
// executor of commands starts both before its first task, and initialising the other packages
// would take most of their time. Therefore this package and its imports must not import
// packages with an expensive initialisation, such as net; a test checks that.
package forking

import (
	"fmt"
	"math"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// The subcommands of these processes.
const (
	GuardCommand  = "guard"
	ForkerCommand = "forker"
)

// ThisProgram is the path with which a process executes its own program.
const ThisProgram = "/proc/self/exe"

// init runs a guard or a forker and exits: see the package's comment.
func init() {
	if len(os.Args) < 2 || len(os.Args) > 2 && strings.HasPrefix(os.Args[2], "-h") ||
		len(os.Args) > 2 && os.Args[2] == "--help" {
		return // help is printed by main
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

// keepDescriptors marks inherited descriptors close-on-exec. Without close_range (Linux before
// 5.11) it does nothing.
func keepDescriptors() {
	_ = unix.CloseRange(3, math.MaxInt32, unix.CLOSE_RANGE_CLOEXEC)
}
