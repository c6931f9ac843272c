package runfiles

import (
	"fmt"
	"io"
	"maps"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/tfcluster/tfcluster/cluster/rundir"
)

// checkpoints is the name of the folder with a run's checkpoints in its own.
const checkpoints = "checkpoints"

// aside is the name of the folder with what a restart left out.
const aside = "torn"

// SetAside moves the checkpoints of a run that are newer than the newest whole set out of the way of an attempt, so that
// all ranks continue from the same step: into run-N/torn/ATTEMPT. It returns a line for users for each set. No task may be
// writing.
//
// A set is what has one step in its names (step-17/rank-0.pt, ckpt-17.data-00000-of-00002). It is whole if each of the run's
// ranks that wrote in the sets before has written here: an earlier run may have had more ranks. Files without a step, and
// what TensorFlow's state file lists, stay.
func (r *Receiver) SetAside(run int32, attempt, ranks int) (notes []string, err error) {
	folder, files, err := r.checkpointsOf(run)
	if err != nil {
		return nil, err
	}
	var listed []string
	for _, f := range files {
		if NamesOthers(f.Path) {
			state, err := r.read(path.Join(folder, f.Path))
			if err != nil {
				return nil, err
			}
			listed = append(listed, named(f.Path, state)...)
		}
	}
	away := path.Join(rundir.Name(run), aside, strconv.Itoa(attempt))
	for _, set := range tornSets(files, listed, ranks) {
		for _, f := range set.files {
			if err := r.storage.Rename(path.Join(folder, f.Path), path.Join(away, f.Path), f.Modified); err != nil {
				return notes, err
			}
			r.own("", path.Join(folder, f.Path))
		}
		notes = append(notes, fmt.Sprintf("checkpoint %s is left out: %s; they are now in %s", set.name, set.lack, away))
	}
	return notes, nil
}

// ApartRanks returns the pattern of the checkpoint files without a step that each rank of a run writes, of which some are
// older than others by more than apartAfter; "" if there are none.
func (r *Receiver) ApartRanks(run int32) (pattern string, err error) {
	_, files, err := r.checkpointsOf(run)
	return apartRanks(files), err
}

// checkpointsOf returns the folder of a run's checkpoints, and the complete files below it with paths relative to it.
func (r *Receiver) checkpointsOf(run int32) (folder string, files []File, err error) {
	folder = path.Join(rundir.Name(run), checkpoints)
	files, err = r.storage.Files(folder)
	files = slices.DeleteFunc(files, func(f File) bool { return temporaryName().MatchString(f.Path) })
	for i := range files {
		files[i].Path = strings.TrimPrefix(files[i].Path, folder+"/")
	}
	return folder, files, err
}

// read returns the contents of a file, of which it reads the beginning alone where it is too large for a state file.
func (r *Receiver) read(name string) ([]byte, error) {
	f, err := r.storage.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, mostState))
}

// mostState bounds the size of a state file: a program may write any file of that name.
const mostState = 1 << 20

// tornSet is a set of checkpoint files that not every rank has written.
type tornSet struct {
	name  string // of what the files have in common: step-17
	files []File
	lack  string // what is there, for users
}

// checkpointFile is a file with the set that it is part of.
type checkpointFile struct {
	File
	series  string // what is before the number of its set; sets of one series follow one another
	number  int
	pattern string // the name without numbers: what each rank writes has the same one
}

// tornSets returns the sets that are newer than the newest whole one, of each series the newest first. listed are the
// checkpoints in a state file, which are whole.
func tornSets(files []File, listed []string, ranks int) []tornSet {
	sets := map[string]map[int][]checkpointFile{} // by series and number
	for _, file := range files {
		if f, ok := setOf(file); ok {
			if sets[f.series] == nil {
				sets[f.series] = map[int][]checkpointFile{}
			}
			sets[f.series][f.number] = append(sets[f.series][f.number], f)
		}
	}
	var torn []tornSet
	for _, series := range slices.Sorted(maps.Keys(sets)) {
		numbers := slices.Sorted(maps.Keys(sets[series]))
		for i, number := range slices.Backward(numbers) {
			set := tornSet{name: fmt.Sprintf("%s%d", series, number)}
			var before [][]checkpointFile
			for _, n := range numbers[:i] {
				before = append(before, sets[series][n])
			}
			whole := false
			for _, f := range sets[series][number] {
				whole = whole || slices.ContainsFunc(listed, func(prefix string) bool { return ofCheckpoint(f.Path, prefix) })
				set.files = append(set.files, f.File)
			}
			if set.lack = lacks(sets[series][number], before, ranks); whole || set.lack == "" {
				break // older ones are whole, or of no use to a restart
			}
			torn = append(torn, set)
		}
	}
	return torn
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
func setOf(file File) (f checkpointFile, ok bool) {
	name := file.Path
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
	return checkpointFile{file, digits().ReplaceAllString(name[:at[0]], "#"), number, digits().ReplaceAllString(name, "#")}, true
}

// apartAfter is how much later than another one a rank has written a file without a step, so that the two may be of
// different steps.
const apartAfter = 2 * time.Second

// apartRanks returns what ApartRanks does, of files.
func apartRanks(files []File) string {
	type span struct {
		first, last time.Time
	}
	spans := map[string]span{}
	for _, f := range files {
		if _, ok := setOf(f); ok || !digits().MatchString(f.Path) {
			continue
		}
		p := digits().ReplaceAllString(f.Path, "#")
		s, ok := spans[p]
		if !ok || f.Modified.Before(s.first) {
			s.first = f.Modified
		}
		if f.Modified.After(s.last) {
			s.last = f.Modified
		}
		spans[p] = s
	}
	for _, p := range slices.Sorted(maps.Keys(spans)) {
		if spans[p].last.Sub(spans[p].first) > apartAfter {
			return p
		}
	}
	return ""
}
