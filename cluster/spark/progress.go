package spark

import (
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
)

// progressEvery is the interval of reading a session's log while it is being made.
const progressEvery = time.Second

// logLine matches a line in Spark's default layout: time, level, class and message.
var logLine = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^\d\d/\d\d/\d\d \d\d:\d\d:\d\d (INFO|WARN|ERROR) ([\w.$]+): (.+)$`)
})

// yarnReport matches the application's state, which Spark's YARN client logs every second.
var yarnReport = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^Application report for (application_\d+_\d+) \(state: (\w+)\)`)
})

// uninformative are classes whose messages do not say what Spark waits for.
var uninformative = []string{"Utils", "NativeCodeLoader", "SparkConf", "MetricsSystem"}

// progress returns the last line of a session's log that says what making the session waits
// for; "" if there is none. For YARN it is the application's state with YARN's reason.
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
		if slices.Contains(uninformative, m[2][strings.LastIndexByte(m[2], '.')+1:]) {
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

// showProgress reports progress if it differs from shown, the line reported last, and returns
// the line reported last now.
func (a *allocation) showProgress(shown string) string {
	now := progress(a.logTail())
	if now == "" || now == shown || a.req.Waiting == nil {
		return shown
	}
	a.req.Waiting(a.backend.InitialStatus(a.req.Reserve) + ": " + now)
	return now
}

// logTail returns the end of the session's log; "" if it cannot be read.
func (a *allocation) logTail() string {
	f, err := os.Open(a.logPath())
	if err != nil {
		return ""
	}
	defer f.Close()
	if info, err := f.Stat(); err == nil && info.Size() > maxLog {
		_, _ = f.Seek(-maxLog, io.SeekEnd) // without it the first lines are read
	}
	text, err := io.ReadAll(io.LimitReader(f, maxLog))
	if err != nil {
		return ""
	}
	return string(text)
}
