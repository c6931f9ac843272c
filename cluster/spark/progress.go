package spark

import (
	"io"
	"os"
	"regexp"
	"strings"
	"sync"
	"time"
)

// progressEvery is how often a session's log is looked at while the session is being made.
const progressEvery = time.Second

// logLine is a line that Spark logs by its default layout: time, level, class and message.
var logLine = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^\d\d/\d\d/\d\d \d\d:\d\d:\d\d (INFO|WARN|ERROR) ([\w.$]+): (.+)$`)
})

// yarnReport is the state of an application as Spark's YARN client logs it every second.
var yarnReport = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^Application report for (application_\d+_\d+) \(state: (\w+)\)`)
})

// uninformative are classes whose messages concern this machine only, and not for what Spark waits.
var uninformative = []string{"Utils", "NativeCodeLoader", "SparkConf", "MetricsSystem"}

// progress returns the last line of a session's log that tells for what the making of the session
// waits; "" where there is none. Of YARN it is the application's state, with YARN's reason.
func progress(text string) string {
	last, state, reason := "", "", ""
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if diagnostics, ok := strings.CutPrefix(line, "diagnostics: "); ok && state != "" && diagnostics != "N/A" {
			reason = diagnostics
		}
		m := logLine().FindStringSubmatch(line)
		if m == nil {
			continue
		}
		short := m[2][strings.LastIndexByte(m[2], '.')+1:]
		skip := false
		for _, class := range uninformative {
			skip = skip || short == class
		}
		if skip {
			continue
		}
		if report := yarnReport().FindStringSubmatch(m[3]); report != nil {
			if now := report[1] + " is " + report[2]; now != state {
				state, reason = now, ""
			}
			last = state
			continue
		}
		last, state, reason = m[3], "", ""
	}
	if reason != "" && last == state {
		last += ": " + reason
	}
	const most = 300
	if len(last) > most {
		last = strings.ToValidUTF8(last[:most], "") + "…"
	}
	return last
}

// showProgress reports what the session that is being made waits for, if that differs from shown, the line
// reported last. It returns the line reported last now.
func (a *allocation) showProgress(shown string) string {
	now := progress(a.logTail())
	if now == "" || now == shown || a.req.Waiting == nil {
		return shown
	}
	a.req.Waiting(a.backend.InitialStatus(a.req.Reserve) + ": " + now)
	return now
}

// logTail is the end of the session's log; "" where it cannot be read.
func (a *allocation) logTail() string {
	f, err := os.Open(a.logPath())
	if err != nil {
		return ""
	}
	defer f.Close()
	if info, err := f.Stat(); err == nil && info.Size() > maxLog {
		_, _ = f.Seek(-maxLog, io.SeekEnd) // at worst the first words are read for the last
	}
	text, err := io.ReadAll(io.LimitReader(f, maxLog))
	if err != nil {
		return ""
	}
	return string(text)
}
