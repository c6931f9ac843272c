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

// SetAside moves the checkpoints of a run that are newer than the newest whole set out of the way of its next attempt, so
// that all ranks continue from the same step: into run-N/torn/ATTEMPT, by the attempt that has ended; 0 is before the first
// one. It returns a line for users for each set. No task may be writing.
//
// A set is the files of one folder with one step in their names (step-17/rank-0.pt, ckpt-17.data-00000-of-00002). It is torn
// if some of the run's ranks, and not all that did so in a set before, have written in it: an earlier run may have had more
// ranks. Sets that attempt 0 has left, files without a step, and what TensorFlow's state file lists, stay.
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
	torn, newest := tornSets(files, listed, ranks, r.resumedFrom(run))
	for _, set := range torn {
		for _, f := range set.files {
			if err := r.storage.Rename(path.Join(folder, f.Path), path.Join(away, f.Path), f.Modified); err != nil {
				return notes, err
			}
			r.own("", path.Join(folder, f.Path))
		}
		notes = append(notes, fmt.Sprintf("checkpoint %s is left out: %s; they are now in %s", set.name, set.lack, away))
	}
	if attempt == 0 {
		r.resumeFrom(run, newest)
	}
	return notes, nil
}

// resumed is from where the newest resumed run continues: the number of the newest set of each series.
type resumed struct {
	run    int32
	newest map[string]int
}

func (r *Receiver) resumeFrom(run int32, newest map[string]int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.resumed = resumed{run, newest}
}

func (r *Receiver) resumedFrom(run int32) map[string]int {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.resumed.run != run {
		return nil
	}
	return r.resumed.newest
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
	series  string // the folder and the word before the number of its set; sets of one series follow one another
	number  int
	pattern string // the name without numbers: what each rank writes has the same one
}

// tornSets returns the sets of files that are newer than the newest whole one, of each series the newest first, and the
// number of the newest other set of each series. listed are the checkpoints in a state file, which are whole; sets up to
// the numbers in from, by series, are not looked at.
func tornSets(files []File, listed []string, ranks int, from map[string]int) (torn []tornSet, newest map[string]int) {
	newest = map[string]int{}
	series := map[string]map[int][]checkpointFile{} // sets by number
	for _, file := range files {
		if f, ok := setOf(file); ok {
			if series[f.series] == nil {
				series[f.series] = map[int][]checkpointFile{}
			}
			series[f.series][f.number] = append(series[f.series][f.number], f)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(series)) {
		sets := series[name]
		numbers := slices.Sorted(maps.Keys(sets))
		for i, number := range slices.Backward(numbers) {
			set := tornSet{name: fmt.Sprintf("%s%d", name, number)}
			byRank := false
			for _, f := range sets[number] {
				if slices.ContainsFunc(listed, func(prefix string) bool { return ofCheckpoint(f.Path, prefix) }) {
					byRank = true // and whole
				}
				set.files = append(set.files, f.File)
			}
			if first, resumed := from[name]; !byRank && (!resumed || number > first) {
				set.lack, byRank = lacks(sets, number, numbers[:i], ranks)
			}
			if set.lack != "" {
				torn = append(torn, set)
				continue
			}
			newest[name] = max(newest[name], number)
			if byRank {
				break // older ones are of no use to a restart
			}
		}
	}
	return torn, newest
}

// lacks returns what a set lacks beside those before it: of what several ranks write there, some have written here, and not
// all; the one before may be torn, too. byRank is whether its files say how many ranks have written it.
func lacks(sets map[int][]checkpointFile, number int, before []int, ranks int) (lack string, byRank bool) {
	have, had := perPattern(sets[number]), map[string]int{}
	for _, n := range before {
		for pattern, n := range perPattern(sets[n]) {
			had[pattern] = max(had[pattern], n)
		}
	}
	for _, pattern := range slices.Sorted(maps.Keys(have)) {
		if !ofRank(pattern) {
			continue
		}
		if n := min(had[pattern], ranks); have[pattern] < n {
			return fmt.Sprintf("it has %d of %d files %s", have[pattern], n, path.Base(pattern)), true
		}
		byRank = byRank || had[pattern] > 0
	}
	return "", byRank
}

// ofRank reports whether a pattern has the number of a rank or a part, not of a sample or a fold, of which a set may have
// any number.
func ofRank(pattern string) bool {
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
		return regexp.MustCompile(`(?i)(?:^|[^a-z])((?:step|epoch|ckpt|checkpoint|iter|iteration|save|model|batch)s?[-_.=]?)$`)
	})
	ofRanks = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`(?i)(?:^|[^a-z])(?:rank|worker|ps|task|shard|part|proc|node|host|gpu|data|of|dp|mp|tp|pp|w|r)[-_.=]?$`)
	})
	// training matches the roles whose tasks are the ranks of one run.
	training = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`(?i)\b(?:chief|master)\b`) })
)

// setOf returns the set that a file is part of; false if its name has no number of a step: one behind a word for it, or
// alone the name of a folder (17/rank-0.pt).
func setOf(file File) (f checkpointFile, ok bool) {
	name := file.Path
	for _, alone := range []bool{false, true} {
		for _, at := range digits().FindAllStringIndex(name, -1) {
			before, after := name[:at[0]], name[at[1]:]
			word := ""
			if found := ofSteps().FindStringSubmatch(before); found != nil {
				word = found[1]
			} else if !alone || before != "" && !strings.HasSuffix(before, "/") || !strings.HasPrefix(after, "/") {
				continue
			}
			number, err := strconv.Atoi(name[at[0]:at[1]])
			if err != nil {
				continue
			}
			series := digits().ReplaceAllString(before[:strings.LastIndex(before, "/")+1], "#") + word
			pattern := training().ReplaceAllString(digits().ReplaceAllString(name, "#"), "worker")
			return checkpointFile{file, series, number, pattern}, true
		}
	}
	return f, false
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
