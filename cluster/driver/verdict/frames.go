package verdict

import (
	"fmt"
	"path"
	"regexp"
	"strings"
	"sync"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/internal/lazyre"
)

// meaning is what a frame of a library says about the task.
type meaning int

const (
	meansCollective meaning = iota + 1 // it waits for other tasks
	meansInput
	meansSaving
	meansExporting
	meansValidation
	meansComputing
	meansExit
	meansLock    // it waits for a lock, a thread or a process
	meansNetwork // it waits for the network
	meansNative  // native code runs, which computes or waits for other tasks
)

// marker recognizes frames by their file and function.
type marker struct {
	meaning  meaning
	file     string // regular expression, of the end of the path
	function string // regular expression, of the whole name; "": every function
	name     string // of the collective operation, or what it is in a verdict
}

// Names of collective operations.
const (
	allReduce = "all-reduce"
	barrier   = "barrier"
)

// feedInput is the name of the marker of records that `train DATA` feeds.
const feedInput = "waiting for records of the feed"

// compiled is a marker with its expressions compiled.
type compiled struct {
	marker
	path, name *regexp.Regexp // name is nil if every function matches
}

var compiledMarkers = sync.OnceValue(func() []compiled {
	var all []compiled
	for _, m := range markers() {
		c := compiled{marker: m, path: regexp.MustCompile(`(^|/)(?:` + m.file + `)$`)}
		if m.function != "" {
			c.name = regexp.MustCompile(`^(?:` + m.function + `)$`)
		}
		all = append(all, c)
	}
	return all
})

// markerOf returns the marker of a frame of a library; nil: it says nothing.
func markerOf(f *clusterpb.Frame) *marker {
	function := base(f.GetFunction())
	for i := range compiledMarkers() {
		c := &compiledMarkers()[i]
		if c.path.MatchString(f.GetFile()) && (c.name == nil || c.name.MatchString(function)) {
			return &c.marker
		}
	}
	return nil
}

// local is a function's qualified name without the functions that it is defined in: Loader.next for
// main.<locals>.Loader.next.
func local(function string) string {
	const defined = "<locals>."
	if at := strings.LastIndex(function, defined); at >= 0 {
		return function[at+len(defined):]
	}
	return function
}

// base is a function's name without its class.
func base(function string) string {
	function = local(function)
	return function[strings.LastIndex(function, ".")+1:]
}

// place is where a frame of the program is: load_batch (mnist.py:33).
func place(f *clusterpb.Frame) string {
	at := shortened(path.Base(f.GetFile()))
	if f.GetLine() > 0 {
		at = fmt.Sprintf("%s:%d", at, f.GetLine())
	}
	if name := local(f.GetFunction()); name != "" && name != "<module>" {
		at = fmt.Sprintf("%s (%s)", shortened(name), at)
	}
	return at
}

// longest is the number of characters of a function's name that a verdict has.
const longest = 60

func shortened(name string) string {
	if runes := []rune(name); len(runes) > longest {
		return string(runes[:longest]) + "…"
	}
	return name
}

// phases match the names of a program's functions that say what it does outside of training steps.
var phases = sync.OnceValue(func() map[Phase]*regexp.Regexp {
	return map[Phase]*regexp.Regexp{
		Exporting: regexp.MustCompile(`(?i)^_*export(_|$)`),
		Saving:    regexp.MustCompile(`(?i)^_*(save|checkpoint|ckpt|(write|load|restore)_(model|checkpoint|weights))(_|$)`),
		Validation: regexp.MustCompile(
			`(?i)^_*(eval|evaluate|evaluation|validate|validation|val|test_(step|epoch|loop|model)|predict|inference)(_|$)`),
	}
})

// loading matches functions that load what others have saved.
var loading = lazyre.New(`(?i)^_*(load|restore)(_|$)`)

// phaseOf returns what the name of a function of the program says it does; NoPhase: nothing.
func phaseOf(function string) Phase {
	function = base(function)
	for _, p := range []Phase{Exporting, Saving, Validation} {
		if phases()[p].MatchString(function) {
			return p
		}
	}
	return NoPhase
}
