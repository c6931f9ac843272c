package fabric

import (
	"bytes"
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"net/netip"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"
)

var update = flag.Bool("update", false, "write the wanted parts of the files in testdata anew")

// A file in testdata has the executors of a cluster and the decision that is wanted for them. Lines of an executor:
//
//	== worker:0 node1 10.0.0.11 nccl=2.21.5 memlock=65536 gpus=GPU-a like=worker:1
//	interface eth0 10.0.0.11/24           an interface
//	env NCCL_IB_TC=106                    in its environment
//	given NCCL_DEBUG=INFO                 by --env
//	open dev/infiniband/uverbs0 EPERM     the error of opening it
//	in sys/class/infiniband/mlx5_0        following paths are below it
//	ports/1/state = 4: ACTIVE             a file
//	ports/1/state ! EINVAL                a file that cannot be read
//	sys/a -> ../b                         a symbolic link
//	gid 1/3 fe80:… | RoCE v2 | eth2       the three files of a GID of port 1
//
// The last part begins with "== want MODE".
type bed struct {
	ranks map[string]*bedRank
	order []string
	want  map[Mode]string
	text  string // without the wanted parts
}

// bedRank is an executor of a file.
type bedRank struct {
	rank  Rank
	files fstest.MapFS
	host  Host
	opens map[string]error
}

var errnos = map[string]error{
	"EINVAL": syscall.EINVAL, "EPERM": syscall.EPERM, "EACCES": syscall.EACCES, "ENOENT": syscall.ENOENT,
	"ENODEV": syscall.ENODEV,
}

func readBed(t *testing.T, file string) *bed {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	b := &bed{ranks: map[string]*bedRank{}, want: map[Mode]string{}}
	var at *bedRank
	var mode Mode
	dir := ""
	for line := range strings.Lines(string(data)) {
		words := strings.Fields(line)
		if len(words) > 1 && words[0] == "==" && words[1] == "want" {
			mode = Mode(words[2])
			b.want[mode] = ""
			continue
		}
		if mode != "" {
			b.want[mode] += line
			continue
		}
		b.text += line
		switch {
		case len(words) == 0 || strings.HasPrefix(line, "#"):
		case words[0] == "==":
			at, dir = b.begin(words[1:]), ""
		case words[0] == "in":
			dir = words[1]
		default:
			if !at.line(dir, strings.TrimSpace(line), words) {
				t.Fatalf("%s: %q is not understood", file, line)
			}
		}
	}
	return b
}

func (b *bed) begin(words []string) *bedRank {
	r := &bedRank{files: fstest.MapFS{}, opens: map[string]error{}, host: Host{Memlock: Unlimited, User: "1000"}}
	r.rank = Rank{Task: words[0], Host: words[1], Compared: !strings.HasPrefix(words[0], "ps")}
	for _, w := range words[3:] {
		name, value, _ := strings.Cut(w, "=")
		switch name {
		case "like":
			maps.Copy(r.files, b.ranks[value].files)
			maps.Copy(r.opens, b.ranks[value].opens)
		case "nccl":
			r.rank.NCCL = value
		case "memlock":
			r.host.Memlock, _ = strconv.ParseUint(value, 10, 64)
		case "gpus":
			r.host.GPUs = strings.Split(value, ",")
		}
	}
	r.host.Address = words[2]
	b.ranks[words[0]], b.order = r, append(b.order, words[0])
	return r
}

func (r *bedRank) line(dir, line string, words []string) bool {
	add := func(name string, f *fstest.MapFile) bool { r.files[path.Join(dir, name)] = f; return true }
	switch words[0] {
	case "interface":
		i := Interface{Name: words[1]}
		for _, p := range words[2:] {
			i.Prefixes = append(i.Prefixes, netip.MustParsePrefix(p))
		}
		r.host.Interfaces = append(r.host.Interfaces, i)
		return true
	case "env":
		r.host.Environment = append(r.host.Environment, words[1])
		return true
	case "given":
		name, value, _ := strings.Cut(words[1], "=")
		r.rank.Given = append(r.rank.Given, Variable{name, value, "--env"})
		return true
	case "open":
		r.opens[words[1]] = errnos[words[2]]
		return true
	case "gid":
		port, slot, _ := strings.Cut(words[1], "/")
		parts := strings.Split(strings.TrimSpace(strings.TrimPrefix(line, "gid "+words[1])), "|")
		return add("ports/"+port+"/gids/"+slot, file(parts[0])) &&
			add("ports/"+port+"/gid_attrs/types/"+slot, file(parts[1])) &&
			add("ports/"+port+"/gid_attrs/ndevs/"+slot, file(parts[2]))
	}
	if name, target, found := strings.Cut(line, " -> "); found {
		return add(name, &fstest.MapFile{Data: []byte(target), Mode: fs.ModeSymlink | 0o777})
	}
	if name, content, found := strings.Cut(line, " = "); found {
		return add(name, file(content))
	}
	name, errno, found := strings.Cut(line, " ! ")
	return found && add(name, &fstest.MapFile{Sys: errnos[errno]})
}

// file returns a file; one of sysfs ends with a line end. A content like EINVAL is the error of reading it.
func file(content string) *fstest.MapFile {
	content = strings.TrimSpace(content)
	if err := errnos[content]; err != nil {
		return &fstest.MapFile{Sys: err}
	}
	return &fstest.MapFile{Data: []byte(strings.ReplaceAll(content, `\n`, "\n") + "\n")}
}

// decide returns the executors as Detect finds them, and the decision about them.
func (b *bed) decide(mode Mode) ([]Rank, *Decision, error) {
	var ranks []Rank
	for _, task := range b.order {
		r := b.ranks[task]
		h := r.host
		h.Root = faultyFS{r.files}
		h.Open = func(name string) error {
			if _, err := fs.Stat(r.files, name); err != nil {
				return err
			}
			return r.opens[name]
		}
		rank := r.rank
		rank.Executor = Detect(h)
		ranks = append(ranks, rank)
	}
	d, err := Decide(ranks, mode)
	return ranks, d, err
}

// faultyFS returns the errors of files that cannot be read when they are read, as sysfs does.
type faultyFS struct{ fstest.MapFS }

type faultyFile struct {
	fs.File
	err error
}

// Read implements fs.File.
func (f faultyFile) Read([]byte) (int, error) { return 0, f.err }

// Open implements fs.FS.
func (f faultyFS) Open(name string) (fs.File, error) {
	opened, err := f.MapFS.Open(name)
	if err != nil {
		return nil, err
	}
	info, err := opened.Stat()
	if err != nil {
		return nil, err
	}
	if fault, ok := info.Sys().(error); ok {
		return faultyFile{opened, fault}, nil
	}
	return opened, nil
}

// TestDecide: each file in testdata gives the wanted settings, with their reasons.
func TestDecide(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) < 12 {
		t.Fatalf("files: %v, %v", files, err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			t.Parallel()
			b := readBed(t, file)
			anew := bytes.NewBufferString(b.text)
			for _, mode := range []Mode{Auto, TCP, RDMA} {
				want, wanted := b.want[mode]
				if !wanted {
					continue
				}
				ranks, d, err := b.decide(mode)
				got := describe(ranks, d, err)
				fmt.Fprintf(anew, "== want %s\n%s", mode, got)
				if got != want && !*update {
					t.Errorf("--fabric %s:\n%s\nwant:\n%s", mode, got, want)
				}
			}
			if *update {
				if err := os.WriteFile(file, anew.Bytes(), 0o600); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// describe returns what was found and decided. Executors that are alike are described once.
func describe(ranks []Rank, d *Decision, err error) string {
	var b strings.Builder
	if err != nil {
		fmt.Fprintln(&b, "error:", err)
	}
	fmt.Fprintln(&b, d.Summary)
	if d.TensorFlow != "" {
		fmt.Fprintln(&b, d.TensorFlow)
	}
	last := "-"
	for i := range ranks {
		text := describeRank(&ranks[i], &d.Ranks[i])
		if text == last {
			text = "  the same\n"
		} else {
			last = text
		}
		fmt.Fprintf(&b, "%s\n%s", ranks[i].Task, text)
	}
	return b.String()
}

func describeRank(r *Rank, c *Chosen) string {
	var b strings.Builder
	for i := range r.Ports {
		p := &r.Ports[i]
		fmt.Fprintf(&b, "  port %s %s %s", p, p.Link, RateText(p.Rate))
		for _, part := range []string{p.Netdev, p.Near, p.Problem, p.Remedy} {
			if part != "" {
				fmt.Fprintf(&b, ", %s", part)
			}
		}
		fmt.Fprintln(&b)
	}
	if len(c.Ports) > 0 {
		fmt.Fprintf(&b, "  uses %s\n", strings.Join(c.Ports, " "))
	}
	if v := c.Collective; v != nil {
		fmt.Fprintf(&b, "  collective calls by %s:%d, GID %d", v.Device, v.Port, v.GID)
		if own := [...]int{v.Timeout, v.Retries, v.TrafficClass, v.ServiceLevel}; own != [...]int{-1, -1, -1, -1} {
			fmt.Fprintf(&b, ", timeout, retries, traffic class and service level %d", own)
		}
		fmt.Fprintln(&b)
	}
	for _, s := range c.Settings {
		fmt.Fprintf(&b, "  %s=%s", s.Name, s.Value)
		if s.Source != "" {
			fmt.Fprintf(&b, " by %s", s.Source)
		}
		if s.Reason != "" {
			fmt.Fprintf(&b, " (%s)", s.Reason)
		}
		fmt.Fprintln(&b)
	}
	return b.String()
}
