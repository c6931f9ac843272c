package runfiles

import (
	"fmt"
	"io/fs"
	"maps"
	"path"
	"regexp"
	"slices"
	"strconv"
	"sync"
	"time"
)

// Torn is what a restart leaves out of the checkpoints of an earlier run, so that all ranks continue from the same step.
type Torn struct {
	Names []string // of files, below the folder: they are of sets that not every rank has written
	Why   []string // for users, one line for each set
}

// checkpointFile is a file with the set that it is part of.
type checkpointFile struct {
	name    string
	series  string // what is before the number of its set; sets of one series follow one another
	number  int
	pattern string // the name without numbers: what each rank writes has the same one
}

// FindTorn returns the files below a folder of checkpoints that are newer than the newest whole set. A set is what has one
// step in its names (step-17/rank-0.pt, ckpt-17.data-00000-of-00002). It is whole if each of the run's ranks that wrote in
// the sets before has written here: an earlier run may have had more ranks. Files without a step, and what TensorFlow's
// state file lists, are never left out.
func FindTorn(folder fs.FS, ranks int) (Torn, error) {
	sets := map[string]map[int][]checkpointFile{} // by series and number
	listed := map[string]bool{}
	err := fs.WalkDir(folder, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		if NamesOthers(name) {
			state, err := fs.ReadFile(folder, name)
			if err != nil {
				return err
			}
			for _, prefix := range named(name, state) {
				listed[prefix] = true
			}
		}
		if f, ok := setOf(name); ok && !temporaryName().MatchString(name) {
			if sets[f.series] == nil {
				sets[f.series] = map[int][]checkpointFile{}
			}
			sets[f.series][f.number] = append(sets[f.series][f.number], f)
		}
		return nil
	})
	var torn Torn
	for _, series := range slices.Sorted(maps.Keys(sets)) {
		numbers := slices.Sorted(maps.Keys(sets[series]))
		for i, number := range slices.Backward(numbers) {
			files := sets[series][number]
			var before [][]checkpointFile
			for _, n := range numbers[:i] {
				before = append(before, sets[series][n])
			}
			why := lacks(files, before, ranks)
			if why == "" || slices.ContainsFunc(files, func(f checkpointFile) bool { return isListed(f.name, listed) }) {
				break // older ones are whole, or of no use to a restart
			}
			torn.Why = append(torn.Why, fmt.Sprintf("%s%d is left out: %s", series, number, why))
			for _, f := range files {
				torn.Names = append(torn.Names, f.name)
			}
		}
	}
	return torn, err
}

func isListed(name string, listed map[string]bool) bool {
	for prefix := range listed {
		if ofCheckpoint(name, prefix) {
			return true
		}
	}
	return false
}

// lacks returns what a set lacks beside those before it: of what several ranks write there, fewer have written here. The
// one before may be torn, too.
func lacks(set []checkpointFile, before [][]checkpointFile, ranks int) string {
	have, had := perPattern(set), map[string]int{}
	for _, older := range before {
		for pattern, n := range perPattern(older) {
			had[pattern] = max(had[pattern], n)
		}
	}
	for _, pattern := range slices.Sorted(maps.Keys(had)) {
		if n := min(had[pattern], ranks); have[pattern] < n && byRank(pattern) {
			return fmt.Sprintf("it has %d of %d files %s", have[pattern], n, path.Base(pattern))
		}
	}
	return ""
}

// byRank reports whether a pattern has the number of a rank or a part, not of a sample or a fold, of which a set may have
// any number.
func byRank(pattern string) bool {
	for at, c := range pattern {
		if c == '#' && ofRanks().MatchString(pattern[:at]) {
			return true
		}
	}
	return false
}

func perPattern(set []checkpointFile) map[string]int {
	n := map[string]int{}
	for _, f := range set {
		n[f.pattern]++
	}
	return n
}

var (
	digits = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`\d+`) })
	// ofSteps and ofRanks match what is before a number: of a set, or of a rank or a part of it.
	ofSteps = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`(?i)(step|epoch|ckpt|checkpoint|iter|iteration|save|model|batch)s?[-_.=]?$`)
	})
	ofRanks = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`(?i)(rank|worker|chief|ps|task|shard|part|proc|node|host|gpu|data|of|dp|mp|tp|pp|(^|[-_./])[wr])[-_.=]?$`)
	})
)

// setOf returns the set that a file is part of; false if its name has no number of a step.
func setOf(name string) (f checkpointFile, ok bool) {
	found := digits().FindAllStringIndex(name, -1)
	chosen := slices.IndexFunc(found, func(at []int) bool { return ofSteps().MatchString(name[:at[0]]) })
	if chosen < 0 {
		chosen = slices.IndexFunc(found, func(at []int) bool { return !ofRanks().MatchString(name[:at[0]]) })
	}
	if chosen < 0 {
		return f, false
	}
	at := found[chosen]
	number, err := strconv.Atoi(name[at[0]:at[1]])
	if err != nil {
		return f, false
	}
	return checkpointFile{name, digits().ReplaceAllString(name[:at[0]], "#"), number, digits().ReplaceAllString(name, "#")}, true
}

// apartAfter is how much later than another one a rank has written a file without a step, so that the two may be of
// different steps.
const apartAfter = 2 * time.Second

// ApartRanks returns the pattern of the files without a step that each rank writes, of which some are older than others by
// more than apartAfter; "" if there are none.
func ApartRanks(folder fs.FS) (pattern string, err error) {
	type span struct {
		first, last time.Time
	}
	spans := map[string]span{}
	err = fs.WalkDir(folder, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !digits().MatchString(name) || temporaryName().MatchString(name) {
			return err
		}
		if _, ok := setOf(name); ok {
			return nil
		}
		info, err := entry.Info()
		if err != nil {
			return nil // removed meanwhile
		}
		p := digits().ReplaceAllString(name, "#")
		s, ok := spans[p]
		if !ok {
			s = span{info.ModTime(), info.ModTime()}
		}
		s.first, s.last = earlier(s.first, info.ModTime()), later(s.last, info.ModTime())
		spans[p] = s
		return nil
	})
	for _, p := range slices.Sorted(maps.Keys(spans)) {
		if spans[p].last.Sub(spans[p].first) > apartAfter {
			return p, err
		}
	}
	return "", err
}

func earlier(a, b time.Time) time.Time { return slices.MinFunc([]time.Time{a, b}, time.Time.Compare) }

func later(a, b time.Time) time.Time { return slices.MaxFunc([]time.Time{a, b}, time.Time.Compare) }
