package runfiles

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/tfcluster/tfcluster/cluster/results/rundir"
	"github.com/tfcluster/tfcluster/internal/lazyre"
)

// partPrefix begins the names of incomplete files.
const partPrefix = ".part-"

// IsAppendOnly reports whether a file is only appended to (an event file), so that it can be
// sent while it grows.
func IsAppendOnly(name string) bool {
	base := path.Base(name)
	return strings.Contains(base, "tfevents") || strings.HasPrefix(base, "events.out")
}

// Refusal returns why a file in a run's folder cannot be sent to the driver, "" if it can. name begins with the run's
// folder. The other files are sent.
func Refusal(name string) string {
	parts := strings.Split(name, "/")
	switch {
	case len(name) > maxPath:
		return fmt.Sprintf("a path has more than %d bytes", maxPath)
	case !utf8.ValidString(name):
		return "a name is not UTF-8"
	case strings.ContainsAny(name, "\x00\\"):
		return "a name contains a backslash"
	case len(parts) > 1 && slices.Contains([]string{rundir.Lines, "run.json", rundir.Manifest}, parts[1]):
		return "the driver writes a file or folder of that name"
	}
	return ""
}

// NamesOthers reports whether a file is TensorFlow's state file of a checkpoint folder, which
// lists the complete checkpoints.
func NamesOthers(name string) bool { return path.Base(name) == "checkpoint" }

// temporaryName matches names of files that will be renamed: ours, Keras's, and TensorFlow's
// state file and data shards.
var temporaryName = lazyre.New(
	`(^|/)(\.part-[^/]*|\.\d+-[^/]*|checkpoint\.tmp[^/]*|[^/]*_temp/part-[^/]*|[^/]*\.tempstate[^/]*)$`)

// Rank orders files: a file that refers to others, or marks them as complete, has a higher rank
// than those.
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

// depth returns the number of components of a path.
func depth(name string) int { return strings.Count(name, "/") + 1 }

var namedPaths = lazyre.New(`(?m)^(?:model_checkpoint_path|all_model_checkpoint_paths): ("(?:[^"\\]|\\.)*")`)

// named returns the checkpoint prefixes in a folder's state file. They are relative to the same
// folder as statePath.
func named(statePath string, state []byte) []string {
	var prefixes []string
	for _, m := range namedPaths().FindAllSubmatch(state, -1) {
		prefix, err := strconv.Unquote(string(m[1]))
		if err != nil {
			continue
		}
		if path.IsAbs(prefix) { // TensorFlow writes absolute paths if the folder had another path at that time
			prefix = path.Base(prefix)
		}
		prefixes = append(prefixes, path.Join(path.Dir(statePath), prefix))
	}
	slices.Sort(prefixes)
	return slices.Compact(prefixes)
}

// ofCheckpoint reports whether a file belongs to the checkpoint with a prefix.
func ofCheckpoint(name, prefix string) bool {
	rest, ok := strings.CutPrefix(name, prefix)
	return ok && (rest == ".index" || strings.HasPrefix(rest, ".data-"))
}
