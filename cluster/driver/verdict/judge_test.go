package verdict

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tfcluster/tfcluster/cluster"
	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

var update = flag.Bool("update", false, "write the transcripts anew; commit only what you understand")

// TestJudge plays the cases in testdata/judge. A case is the run and its tasks, then ---- and the verdict:
//
//	run [silence=41s] [median=200ms] [feed]
//	task NAME [step=N] [age=T] [cpu=N] [gpu=N] [is=STATE] [missing=WORDS] [state=S] [wchan=F] [source=S] [more]
//	                                                              its main thread
//	  FUNCTION FILE:LINE [code]                                   frames, innermost first
//	thread NAME [state=S] [wchan=F]                               another thread of the task
//	later                                                         the second snapshot; without it, it is as the first
//
// In values _ is a space.
func TestJudge(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/judge/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no cases: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			t.Parallel()
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var out strings.Builder
			for i, block := range strings.Split(strings.TrimRight(string(want), "\n"), "\n\n") {
				if i > 0 {
					out.WriteString("\n")
				}
				input, _, _ := strings.Cut(block, "\n----")
				run, tasks := parseCase(t, input)
				v := Judge(run, tasks)
				fmt.Fprintf(&out, "%s\n----\n%s", input, describe(&v, tasks))
			}
			if *update {
				if err := os.WriteFile(file, []byte(out.String()), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if out.String() != string(want) {
				t.Errorf("%s differs (go test -run TestJudge -update shows it in git diff); got:\n%s", file, out.String())
			}
		})
	}
}

// describe writes a verdict and the class of each task.
func describe(v *Verdict, tasks []Task) string {
	var out strings.Builder
	fmt.Fprintln(&out, v.Text)
	var words []string
	for _, id := range v.Culprits {
		words = append(words, id.String())
	}
	for word, is := range map[string]bool{
		"certain": v.Certain, "held": v.Held, "stuck": v.Stuck, "computing": v.Computing,
	} {
		if is {
			words = append(words, word)
		}
	}
	if v.Phase != NoPhase {
		words = append(words, string(v.Phase))
	}
	sortWords(words[len(v.Culprits):])
	fmt.Fprintln(&out, "culprits:", strings.Join(words, " "))
	for i := range tasks {
		f := v.Findings[i]
		fmt.Fprintln(&out, strings.TrimRight(fmt.Sprintf("%s %s %s", tasks[i].ID, f.Class, f.Where), " "))
	}
	return out.String()
}

func sortWords(words []string) {
	for i := range words {
		for j := i + 1; j < len(words); j++ {
			if words[j] < words[i] {
				words[i], words[j] = words[j], words[i]
			}
		}
	}
}

// parseCase reads the input of a case.
func parseCase(t *testing.T, input string) (Run, []Task) {
	t.Helper()
	run := Run{ID: 3, Silence: -1}
	var tasks []Task
	var snapshot *clusterpb.Snapshot
	for line := range strings.Lines(input) {
		fields := strings.Fields(line)
		if len(fields) == 0 || fields[0] == "#" {
			continue
		}
		options := map[string]string{}
		for _, f := range fields[1:] {
			k, v, _ := strings.Cut(f, "=")
			options[k] = strings.ReplaceAll(v, "_", " ")
		}
		switch {
		case strings.HasPrefix(line, " "):
			thread := snapshot.Threads[len(snapshot.Threads)-1]
			thread.Frames = append(thread.Frames, parseFrame(t, line))
		case fields[0] == "run":
			run.Silence, run.Median = seconds64(t, options["silence"], -1), seconds64(t, options["median"], 0)
			_, run.FeedWaits = options["feed"]
		case fields[0] == "task":
			task := parseTask(t, fields[1], options)
			if task.Missing == "" && task.State == "running" {
				snapshot = &clusterpb.Snapshot{
					Pid: 1, Source: clusterpb.FromPython,
					Process: &clusterpb.ProcessState{State: options["state"], CpuPercent: float32(task.CPU)},
					Threads: []*clusterpb.ThreadStack{{
						Main: true, Name: "MainThread", State: options["state"],
						WaitChannel: strings.ReplaceAll(options["wchan"], " ", "_"),
					}},
				}
				if s := options["source"]; s != "" {
					snapshot.Source = s
				}
				if _, more := options["more"]; more {
					snapshot.ThreadsLeftOut = 1
				}
				task.Snapshots = []*clusterpb.Snapshot{snapshot, snapshot}
			}
			tasks = append(tasks, task)
		case fields[0] == "thread":
			snapshot.Threads = append(snapshot.Threads, &clusterpb.ThreadStack{
				Name: fields[1], State: options["state"], WaitChannel: strings.ReplaceAll(options["wchan"], " ", "_"),
			})
		case fields[0] == "later":
			first := snapshot.Threads[0]
			snapshot = &clusterpb.Snapshot{
				Pid: 1, Source: snapshot.Source, Process: snapshot.Process, Threads: []*clusterpb.ThreadStack{{
					Main: true, Name: first.Name, State: first.State, WaitChannel: first.WaitChannel,
				}},
			}
			tasks[len(tasks)-1].Snapshots[1] = snapshot
		default:
			t.Fatalf("what is %q?", line)
		}
	}
	return run, tasks
}

func parseTask(t *testing.T, name string, options map[string]string) Task {
	t.Helper()
	id, err := cluster.ParseTask(name)
	if err != nil {
		t.Fatal(err)
	}
	task := Task{
		ID: id, State: "running", Age: seconds64(t, options["age"], -1), Missing: options["missing"], CPU: 1, GPU: -1,
	}
	if s := options["is"]; s != "" {
		task.State = s
	}
	for _, n := range []struct {
		name string
		into *float64
	}{{"cpu", &task.CPU}, {"gpu", &task.GPU}} {
		if v := options[n.name]; v != "" {
			if *n.into, err = strconv.ParseFloat(v, 64); err != nil {
				t.Fatal(err)
			}
		}
	}
	if v := options["step"]; v != "" {
		if task.Step, err = strconv.ParseInt(v, 10, 64); err != nil {
			t.Fatal(err)
		}
		if task.Age < 0 {
			task.Age = 41 * time.Second
		}
	}
	return task
}

// parseFrame reads "FUNCTION FILE:LINE code".
func parseFrame(t *testing.T, line string) *clusterpb.Frame {
	t.Helper()
	function, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
	place, code, _ := strings.Cut(rest, " ")
	file, number, _ := strings.Cut(place, ":")
	n, err := strconv.Atoi(number)
	if err != nil && number != "" {
		t.Fatalf("%q: %v", line, err)
	}
	return &clusterpb.Frame{
		Function: strings.ReplaceAll(function, "~", " "), File: strings.ReplaceAll(file, "~", " "), Line: int32(n),
		Code: strings.TrimSpace(code),
	}
}

func seconds64(t *testing.T, text string, unknown time.Duration) time.Duration {
	t.Helper()
	if text == "" {
		return unknown
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		t.Fatal(err)
	}
	return d
}
