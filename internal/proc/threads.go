package proc

import (
	"bytes"
	"os"
	"strconv"
	"strings"
	"time"
)

// Thread is a thread of a process.
type Thread struct {
	ID          int
	Name        string        // as the thread or its program has set it, 15 bytes at most
	State       string        // R, S, D, T, t, Z, …
	WaitChannel string        // the kernel function in which it sleeps; "": it runs, or the kernel does not show it
	CPU         time.Duration // that it has used
}

// Threads returns the threads of a process, the main thread first; nil if it has ended. A thread
// that ends meanwhile is left out.
func Threads(pid int) []Thread {
	entries, err := os.ReadDir("/proc/" + strconv.Itoa(pid) + "/task")
	if err != nil {
		return nil
	}
	var threads []Thread
	for _, entry := range entries {
		id, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		t, ok := ReadThread(pid, id)
		switch {
		case !ok:
		case id == pid:
			threads = append([]Thread{t}, threads...)
		default:
			threads = append(threads, t)
		}
	}
	return threads
}

// ReadThread reads one thread of a process, the main thread if id is pid; ok is false if it has ended.
func ReadThread(pid, id int) (t Thread, ok bool) {
	folder := taskFolder(pid, id)
	stat, err := os.ReadFile(folder + "stat")
	if err != nil {
		return Thread{}, false
	}
	open, end := bytes.IndexByte(stat, '('), bytes.LastIndexByte(stat, ')')
	if open < 0 || end < open {
		return Thread{}, false
	}
	fields := strings.Fields(string(stat[end+1:]))
	if len(fields) < 13 {
		return Thread{}, false
	}
	t = Thread{ID: id, Name: string(stat[open+1 : end]), State: fields[0]}
	if wchan, err := os.ReadFile(folder + "wchan"); err == nil && string(wchan) != "0" {
		t.WaitChannel = strings.TrimSpace(string(wchan))
	}
	if sched, err := os.ReadFile(folder + "schedstat"); err == nil { // in nanoseconds, where the kernel has it
		used, _, _ := strings.Cut(string(sched), " ")
		n, _ := strconv.ParseInt(used, 10, 64)
		t.CPU = time.Duration(n)
	} else {
		for _, f := range fields[11:13] {
			n, _ := strconv.ParseInt(f, 10, 64)
			t.CPU += time.Duration(n) * time.Second / clockTicks
		}
	}
	return t, true
}

// SignalState is what a thread does about one signal.
type SignalState struct {
	Caught  bool // the process has a handler
	Blocked bool // the thread does not get it now, for example because its handler runs
	Pending bool // sent to the thread, and not delivered yet
}

// Signal reads what a thread does about a signal; ok is false if it has ended.
func Signal(pid, id, number int) (s SignalState, ok bool) {
	status, err := os.ReadFile(taskFolder(pid, id) + "status")
	if err != nil || number < 1 || number > 64 {
		return SignalState{}, false
	}
	for line := range strings.Lines(string(status)) {
		name, value, _ := strings.Cut(line, ":")
		var into *bool
		switch name {
		case "SigPnd":
			into = &s.Pending
		case "SigBlk":
			into = &s.Blocked
		case "SigCgt":
			into = &s.Caught
		default:
			continue
		}
		mask, err := strconv.ParseUint(strings.TrimSpace(value), 16, 64)
		if err != nil {
			return SignalState{}, false
		}
		*into = mask&(1<<(number-1)) != 0
	}
	return s, true
}

// Command returns a process's arguments, separated by spaces; its name if it has none, such as
// one that has ended; "" if there is no such process.
func Command(pid int) string {
	folder := "/proc/" + strconv.Itoa(pid) + "/"
	raw, err := os.ReadFile(folder + "cmdline")
	if err == nil && len(raw) > 0 {
		return strings.TrimSpace(string(bytes.ReplaceAll(raw, []byte{0}, []byte{' '})))
	}
	name, err := os.ReadFile(folder + "comm")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(name))
}

func taskFolder(pid, id int) string {
	return "/proc/" + strconv.Itoa(pid) + "/task/" + strconv.Itoa(id) + "/"
}
