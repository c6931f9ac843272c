package runfiles

import (
	"cmp"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// partPrefix begins the names of files that are not whole yet.
const partPrefix = ".part-"

// Grows tells whether a file only grows (an event file), so that it may be sent while
// it does. Others arrive whole.
func Grows(name string) bool {
	base := path.Base(name)
	return strings.Contains(base, "tfevents") || strings.HasPrefix(base, "events.out")
}

// NamesOthers tells whether a file is TensorFlow's state file of a folder of checkpoints, which
// names those that are complete.
func NamesOthers(name string) bool { return path.Base(name) == "checkpoint" }

// passing matches the names that files bear before they are given their own: ours and
// Keras's aside, TensorFlow's state file and the shards of its data.
var passing = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`(^|/)(\.part-[^/]*|\.\d+-[^/]*|checkpoint\.tmp[^/]*|[^/]*_temp/part-[^/]*|[^/]*\.tempstate[^/]*)$`)
})

// Rank orders files so that one that names others, or says that they are complete,
// stands behind them.
func Rank(name string) int {
	switch base := path.Base(name); {
	case NamesOthers(name):
		return 3
	case base == "saved_model.pb" || base == "fingerprint.pb" || base == "training_metadata.json":
		return 2
	case strings.HasSuffix(base, ".index"):
		return 1
	}
	return 0
}

// ByRank compares two paths by rank, then by name.
func ByRank(a, b string) int { return cmp.Or(cmp.Compare(Rank(a), Rank(b)), cmp.Compare(a, b)) }

// depth is the number of a path's components.
func depth(name string) int { return strings.Count(name, "/") + 1 }

var namedPaths = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`(?m)^(?:model_checkpoint_path|all_model_checkpoint_paths): ("(?:[^"\\]|\\.)*")`)
})

// named are the prefixes that a folder's `checkpoint` state file names, relative to
// the folder that its path is relative to.
func named(statePath string, state []byte) []string {
	var prefixes []string
	for _, m := range namedPaths().FindAllSubmatch(state, -1) {
		prefix, err := strconv.Unquote(string(m[1]))
		if err != nil {
			continue
		}
		if path.IsAbs(prefix) { // TensorFlow writes these where the folder was given otherwise than it is here
			prefix = path.Base(prefix)
		}
		prefixes = append(prefixes, path.Join(path.Dir(statePath), prefix))
	}
	slices.Sort(prefixes)
	return slices.Compact(prefixes)
}

// ofCheckpoint tells whether a file is a part of the checkpoint with a prefix.
func ofCheckpoint(name, prefix string) bool {
	rest, ok := strings.CutPrefix(name, prefix)
	return ok && (rest == ".index" || strings.HasPrefix(rest, ".data-"))
}
