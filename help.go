package main

import (
	"context"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
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
	verb, asked := args[0], len(args) > 1 && isHelp(args[1])
	switch {
	case verb == "help" && len(args) > 1 && !asked:
		verb, asked = args[1], true
	case verb == "help", isHelp(verb):
		code = runShell(ctx, []string{"help"})
		fmt.Print(setupHelp)
		return code, true
	}
	by := startedBy(verb)
	switch {
	case by != "" && asked:
		fmt.Printf("tfcluster %s is a part that %s\n", verb, by)
	case (verb == "driver" || verb == "agent" || verb == "spark-slot") && isTerminal(os.Stdin):
		fmt.Fprintf(os.Stderr, "tfcluster %s is a part that %s\n", verb, by)
		return 2, true
	case !asked:
		return 0, false
	case verb == "install", verb == "uninstall":
		fmt.Print(installUsage)
	case verb == "version":
		fmt.Println("tfcluster version prints this program's version")
	default:
		return runShell(ctx, []string{"help", verb}), true
	}
	return 0, true
}

func isHelp(word string) bool { return word == "--help" || word == "-h" || word == "-help" }

// startedBy says who starts a part that is not for people; "" for what is.
func startedBy(verb string) string {
	switch verb {
	case "kernel":
		return "a Jupyter server starts, with -f FILE; tfcluster install registers it"
	case "gate":
		return "the Python package tfcluster starts where there is no kernel of ours"
	case "driver":
		return "reserve and run start, one for each cluster"
	case "appmaster":
		return "YARN starts in a container, for reserve --managed"
	case "agent":
		return "a driver starts, one on each executor"
	case "spark-slot":
		return "a task of Spark's starts, to start an agent on its executor"
	case "guard":
		return "an agent starts, one for each zygote or forker, to end what these leave when they are killed"
	case "forker":
		return "an agent starts, one on each host, where no Python is wanted"
	case "broker":
		return "jupyter-server-proxy starts, with --socket PATH; tfcluster install registers it"
	default:
		return ""
	}
}

func isTerminal(f *os.File) bool {
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}
