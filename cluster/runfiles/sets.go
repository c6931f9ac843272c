package runfiles

import (
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tfcluster/tfcluster/cluster/results/rundir"
	"github.com/tfcluster/tfcluster/internal/lazyre"
)

// checkpoints is the name of the folder with a run's checkpoints in its own.
const checkpoints = "checkpoints"

// aside is the name of the folder to which torn sets are moved.
const aside = "torn"

// SetAside moves the checkpoints of a run that are newer than its newest whole set to run-N/torn/ATTEMPT, so that in
// the next attempt all ranks continue from the same step. attempt is the one that has ended, 0 before the first.
// SetAside returns one line for users for each set. While it runs, no task may write checkpoints.
//
// A set is the files of one folder with one step in their names (step-17/rank-0.pt, ckpt-17.data-00000-of-00002). It
// is torn if it has files of some ranks, but fewer than an earlier set has and than the run has ranks (the run that
// is resumed may have had more). Sets that were there before attempt 1, files without a step, and checkpoints that
// TensorFlow's state file lists stay.
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

// resumed is the run that was resumed last, and the newest set of each series that it started with.
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

// ApartRanks returns the pattern of the checkpoint files of a run that each rank writes, without a step in their
// names, and whose times differ by more than apartAfter; "" if there are none.
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

// read returns the first mostState bytes of a file.
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
	name  string // the common part of the files' names: step-17
	files []File
	lack  string // how many of its files are there, for users; "" if it is not torn
}

// checkpointFile is a file with the set that it is part of.
type checkpointFile struct {
	File
	series  string // the folder and the word before the number of its set; sets of one series follow one another
	number  int
	pattern string // the name without numbers, which is the same for each rank's file
}

// tornSets returns the sets of files that are newer than the newest whole one, of each series the newest first, and
// the number of the newest other set of each series. listed are the checkpoints in a state file, which are whole;
// sets up to the numbers in from, by series, are not judged.
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
		first, resumed := from[name]
		had := map[string]int{} // the most files of each pattern in one of the sets so far
		var sets []judgedSet
		for _, number := range slices.Sorted(maps.Keys(series[name])) {
			files := series[name][number]
			set := judgedSet{tornSet: tornSet{name: fmt.Sprintf("%s%d", name, number)}, number: number}
			have := map[string]int{} // files by pattern
			for _, f := range files {
				have[f.pattern]++
				set.files = append(set.files, f.File)
				set.whole = set.whole ||
					slices.ContainsFunc(listed, func(prefix string) bool { return ofCheckpoint(f.Path, prefix) })
			}
			if !set.whole && (!resumed || number > first) {
				set.lack, set.whole = judge(have, had, ranks)
			}
			for pattern, n := range have {
				had[pattern] = max(had[pattern], n)
			}
			sets = append(sets, set)
		}
		for _, set := range slices.Backward(sets) {
			if set.lack != "" {
				torn = append(torn, set.tornSet)
				continue
			}
			newest[name] = max(newest[name], set.number)
			if set.whole {
				break // a restart does not use older ones
			}
		}
	}
	return torn, newest
}

// judgedSet is a set that may be torn.
type judgedSet struct {
	tornSet
	number int
	whole  bool // every rank has saved it; false also where its names do not say so
}

// judge compares the numbers of a set's files, by pattern, with the largest numbers of the sets before it. lack is
// the first pattern of which the set has fewer; whole is whether it has as many of some pattern, and fewer of none.
func judge(have, had map[string]int, ranks int) (lack string, whole bool) {
	for _, pattern := range slices.Sorted(maps.Keys(have)) {
		if !ofRank(pattern) {
			continue
		}
		if n := min(had[pattern], ranks); have[pattern] < n {
			return fmt.Sprintf("it has %d of %d files %s", have[pattern], n, path.Base(pattern)), false
		}
		whole = whole || had[pattern] > 0
	}
	return "", whole
}

// ofRank reports whether a pattern has the number of a rank, or of a part. A set may have any number of other files,
// such as samples or folds.
func ofRank(pattern string) bool {
	for at, c := range pattern {
		if c == '#' && ofRanks().MatchString(pattern[:at]) {
			return true
		}
	}
	return false
}

var (
	digits = lazyre.New(`\d+`)
	// ofSteps and ofRanks match what is before a number: of a set, or of a rank or a part of it.
	ofSteps = lazyre.New(`(?i)(?:^|[^a-z])((?:step|epoch|ckpt|checkpoint|iter|iteration|save|model|batch)s?[-_.=]?)$`)
	ofRanks = lazyre.New(
		`(?i)(?:^|[^a-z])(?:rank|worker|ps|task|shard|part|proc|node|host|gpu|data|of|dp|mp|tp|pp|w|r)[-_.=]?$`)
	// training matches the roles whose tasks are the ranks of one run.
	training = lazyre.New(`(?i)\b(?:chief|master)\b`)
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

// apartAfter is the difference of the times of two ranks' files without a step from which on they may be of
// different steps.
const apartAfter = 2 * time.Second

// apartRanks is ApartRanks of a list of files.
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
