package bridge

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"

	"github.com/tfcluster/tfcluster/magics/command"
)

// Main is `tfcluster gate [--owner NAME] [--python PATH]`: the process behind a plain ipykernel. The kernel's shim
// has started it with one end of a socket pair as descriptor 3. Main writes there the path of the gate, {"gate":
// PATH}. It returns when the other end closes; clusters continue.
func Main(ctx context.Context, argv []string, lifeline *os.File,
	open func(owner, python string) (r Runner, p PanelServer, end func()),
) error {
	flags := flag.NewFlagSet("gate", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	owner := flags.String("owner", "", "connection file's name of the kernel")
	python := flags.String("python", "", "the kernel's interpreter")
	if err := flags.Parse(argv); err != nil {
		return &command.UsageError{Verb: "gate", Text: err.Error()}
	}
	r, p, end := open(*owner, *python)
	defer end()
	g, err := OpenGate(ctx, r, p)
	if err != nil {
		return err
	}
	defer g.Close()
	if err := json.NewEncoder(lifeline).Encode(map[string]string{"gate": g.Path()}); err != nil {
		return fmt.Errorf("only a notebook's Python starts this command, and it cannot be told where tfcluster listens: %w; "+
			"restart the kernel", err)
	}
	ended := make(chan struct{})
	go func() { // ends with the kernel or with lifeline's close
		defer close(ended)
		_, _ = io.Copy(io.Discard, lifeline) // with any error, too, the kernel has exited
	}()
	select {
	case <-ended:
	case <-ctx.Done():
		_ = lifeline.Close() // wakes the reader
		<-ended
	}
	return nil
}
