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
  uninstall    take them away again
  version      this program's version
`

// help answers every way of asking for help: none of them is an error. What it does
// not answer is to be done.
func help(ctx context.Context, args []string) (code int, answered bool) {
	verb, asked := args[0], len(args) > 1 && command.IsHelp(args[1])
	switch {
	case verb == "help" && len(args) > 1 && !asked:
		verb, asked = args[1], true
	case verb == "help", command.IsHelp(verb):
		code = runShell(ctx, []string{"help"})
		fmt.Print(setupHelp)
		return code, true
	}
	part := find(verb)
	switch {
	case part != nil && asked && part.startedBy != "":
		fmt.Printf("tfcluster %s is a part that %s\n", verb, part.startedBy)
	case part != nil && asked:
		fmt.Print(part.usage)
	case part != nil && part.needsInput && isTerminal(os.Stdin):
		fmt.Fprintf(os.Stderr, "tfcluster %s is a part that %s\n", verb, part.startedBy)
		return 2, true
	case asked:
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
