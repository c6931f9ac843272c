package main

import (
	"context"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/tfcluster/tfcluster/magics/command"
)

const setupHelp = `
Setting up:
  install      register the kernel and the extension with Jupyter
  uninstall    remove them again
  version      this program's version
`

// help handles all requests for help, which are no errors. answered is false if the arguments are not such
// a request.
func help(ctx context.Context, args []string) (code int, answered bool) {
	verb, forHelp := args[0], len(args) > 1 && command.IsHelp(args[1])
	switch {
	case verb == "help" && len(args) > 1 && !forHelp:
		verb, forHelp = args[1], true
	case verb == "help", command.IsHelp(verb):
		code = runShell(ctx, []string{"help"})
		fmt.Print(setupHelp)
		return code, true
	}
	part := find(verb)
	switch {
	case part != nil && forHelp && part.startedBy != "":
		fmt.Printf("tfcluster %s is a part that %s\n", verb, part.startedBy)
	case part != nil && forHelp:
		fmt.Print(part.usage)
	case part != nil && part.needsInput && isTerminal(os.Stdin):
		fmt.Fprintf(os.Stderr, "tfcluster %s is a part that %s\n", verb, part.startedBy)
		return 2, true
	case forHelp:
		return runShell(ctx, []string{"help", verb}), true
	default:
		return 0, false
	}
	return 0, true
}

func isTerminal(f *os.File) bool {
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}
