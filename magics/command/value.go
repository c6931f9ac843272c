package command

import (
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tfcluster/tfcluster/cluster"
	"github.com/tfcluster/tfcluster/internal/lazyre"
)

// Value is the parsed value of an option.
type Value struct {
	Text     string
	Number   int64 // KindCount, KindSize (bytes), KindRun, KindRoleCount
	Float    float64
	Duration time.Duration // 0 for never
	Key      string        // K of K=V, ROLE of ROLE=N
	HasValue bool          // the text is K=V and not K
}

// read parses the text of an option.
func (o *Option) read(given string) (Value, error) {
	v := Value{Text: given}
	var err error
	switch o.Kind {
	case KindFlag:
		v.Text = "true"
	case KindCount:
		v.Number, err = readCount(given, 0, o.Max)
	case KindRun:
		v.Number, err = readCount(given, 1, math.MaxInt32)
	case KindNumber:
		v.Float, err = readNumber(given, float64(o.Max))
	case KindSize:
		v.Number, err = ParseSize(given)
	case KindDuration:
		v.Duration, err = ParseDuration(given)
	case KindIdle:
		if given != "never" {
			v.Duration, err = ParseDuration(given)
		}
	case KindKeyValue, KindEnv:
		err = v.keyValue(given, o.Kind == KindEnv)
	case KindRoleCount:
		err = v.roleCount(given)
	case KindRoles:
		err = readRoles(given)
	case KindChoice:
		err = readChoice(given, o.Choices)
	case KindTask:
		if !IsContainer(given) {
			_, err = cluster.ParseTask(given)
		}
	case KindShow:
		if _, perr := cluster.ParseTask(given); given != "all" && perr != nil {
			err = fmt.Errorf("want all, a role like chief or a task like worker:1, not %q", Shorten(given, 40))
		}
	case KindCluster, KindPastCluster:
		err = cluster.CheckName(given)
	case KindResume:
		if _, rerr := readCount(given, 1, math.MaxInt32); given != "last" && rerr != nil {
			err = fmt.Errorf("want last or the number of a run, not %q", Shorten(given, 40))
		}
	case KindPattern:
		if _, err = regexp.Compile(given); err != nil {
			err = fmt.Errorf("%w: write a regular expression, with \\ before each of . * + ? ( ) [ { that stands for itself",
				err)
		}
	case KindSince:
		_, err = ParseSince(given, time.Now())
	case KindObject:
		if !IsIdentifier(given) {
			err = fmt.Errorf("want the name of a variable of the notebook, not %q", Shorten(given, 40))
		}
	case KindText, KindPath:
		if given == "" {
			err = errors.New("the value is empty: give one, or leave the option out")
		}
	}
	return v, err
}

func readCount(s string, low, high int64) (int64, error) {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < low || n > high {
		return 0, fmt.Errorf("want a whole number from %d to %d, not %q", low, high, Shorten(s, 40))
	}
	return n, nil
}

func readNumber(s string, high float64) (float64, error) {
	f, err := strconv.ParseFloat(s, 64)
	if err != nil || !(f > 0) || f > high {
		return 0, fmt.Errorf("want a number above 0, at most %g, not %q", high, Shorten(s, 40))
	}
	return f, nil
}

var sizePattern = lazyre.New(`^([0-9]+(?:\.[0-9]+)?)\s*([kmgt]?)(i?b)?$`)

// maxSize is the maximum size; more than a petabyte is a typing error.
const maxSize = 1 << 50

// ParseSize parses a number of bytes: 512m, 4g, 1.5G, 1GiB. Units are powers of 1024.
func ParseSize(s string) (int64, error) {
	m := sizePattern().FindStringSubmatch(strings.ToLower(s))
	if m == nil {
		return 0, fmt.Errorf("want a size like 512m or 4g, not %q", Shorten(s, 40))
	}
	f, err := strconv.ParseFloat(m[1], 64)
	f = math.Ldexp(f, map[string]int{"k": 10, "m": 20, "g": 30, "t": 40}[m[2]])
	switch {
	case err != nil || f > maxSize:
		return 0, fmt.Errorf("%s is more than the maximum of 1024t: want a size like 512m or 4g", Shorten(s, 40))
	case f < 1<<20 && m[2] == "":
		return 0, fmt.Errorf("%s is less than a megabyte: did you forget the unit? Like 512m or 4g", Shorten(s, 40))
	case f < 1<<20:
		return 0, fmt.Errorf("%s is less than a megabyte: want a size like 512m or 4g", Shorten(s, 40))
	}
	return int64(f), nil
}

// maxDuration is the maximum duration.
const maxDuration = 365 * 24 * time.Hour

// ParseDuration parses 30s, 10m, 1h30m, 2d; a number without a unit is seconds.
func ParseDuration(s string) (time.Duration, error) {
	text := s
	if _, err := strconv.ParseFloat(s, 64); err == nil {
		text += "s"
	}
	if days, ok := strings.CutSuffix(text, "d"); ok {
		if f, err := strconv.ParseFloat(days, 64); err == nil {
			text = strconv.FormatFloat(f*24, 'f', -1, 64) + "h"
		}
	}
	d, err := time.ParseDuration(text)
	switch {
	case err != nil:
		return 0, fmt.Errorf("want a duration like 30s, 10m or 2h, not %q", Shorten(s, 40))
	case d <= 0 || d > maxDuration:
		return 0, fmt.Errorf("%s is out of range: want more than 0 and at most a year", Shorten(s, 40))
	case d < time.Millisecond:
		return 0, fmt.Errorf("%s is less than a millisecond: want a duration like 30s, 10m or 2h", Shorten(s, 40))
	}
	return d, nil
}

// ParseSince parses a time in the past: a duration before now, a time of day, RFC 3339.
func ParseSince(s string, now time.Time) (time.Time, error) {
	if d, err := ParseDuration(s); err == nil {
		return now.Add(-d), nil
	}
	for _, layout := range []string{
		time.RFC3339, "2006-01-02T15:04:05", "2006-01-02 15:04:05", "2006-01-02 15:04", "2006-01-02",
	} {
		if t, err := time.ParseInLocation(layout, s, now.Location()); err == nil {
			return t, nil
		}
	}
	for _, layout := range []string{"15:04:05", "15:04"} {
		if t, err := time.ParseInLocation(layout, s, now.Location()); err == nil {
			t = time.Date(now.Year(), now.Month(), now.Day(), t.Hour(), t.Minute(), t.Second(), 0, now.Location())
			if t.After(now) {
				t = t.AddDate(0, 0, -1)
			}
			return t, nil
		}
	}
	return time.Time{}, fmt.Errorf("want a duration back (10m), a time (14:30) or a date, not %q", Shorten(s, 40))
}

func (v *Value) keyValue(given string, bare bool) error {
	k, val, ok := strings.Cut(given, "=")
	if k == "" || (!ok && !bare) || strings.ContainsRune(k, 0) || strings.ContainsRune(val, 0) {
		return fmt.Errorf("want K=V, not %q", Shorten(given, 40))
	}
	v.Key, v.Text, v.HasValue = k, val, ok
	return nil
}

func (v *Value) roleCount(given string) error {
	role, n, ok := strings.Cut(given, "=")
	if !ok || role == "" {
		return fmt.Errorf("want ROLE=N, like sidecar=1, not %q", Shorten(given, 40))
	}
	if _, err := cluster.ParseTask(role); err != nil || strings.Contains(role, ":") {
		return fmt.Errorf("a role's name is lower-case letters, digits, - and _, not %q", Shorten(role, 40))
	}
	count, err := readCount(n, 0, MaxExecutors)
	v.Key, v.Number = role, count
	return err
}

func readRoles(given string) error {
	for role := range strings.SplitSeq(given, ",") {
		if _, err := cluster.ParseTask(role); err != nil || strings.Contains(role, ":") {
			return fmt.Errorf("want roles, like ps,db, not %q", Shorten(given, 40))
		}
	}
	return nil
}

func readChoice(given string, choices []string) error {
	if slices.Contains(choices, given) {
		return nil
	}
	hint := ""
	if near := Nearest(given, choices); near != "" {
		hint = ": did you mean " + near + "?"
	}
	return fmt.Errorf("want one of %s, not %q%s", strings.Join(choices, ", "), Shorten(given, 40), hint)
}

// Has reports whether the line has the option.
func (c *Command) Has(name string) bool { return c.Seen[name] }

// Last returns the last value of the option.
func (c *Command) Last(name string) Value {
	if vs := c.Values[name]; len(vs) > 0 {
		return vs[len(vs)-1]
	}
	return Value{}
}

// Text returns the text of the option, or "".
func (c *Command) Text(name string) string { return c.Last(name).Text }

// Means sets the cluster of the command.
func (c *Command) Means(name string) { c.Values["cluster"] = []Value{{Text: name}} }

// Count returns the option's number, or otherwise.
func (c *Command) Count(name string, otherwise int64) int64 {
	if !c.Has(name) {
		return otherwise
	}
	return c.Last(name).Number
}

// Millis returns the option's duration in ms, or otherwise; never is 0.
func (c *Command) Millis(name string, otherwise time.Duration) int64 {
	if !c.Has(name) {
		return otherwise.Milliseconds()
	}
	return c.Last(name).Duration.Milliseconds()
}

// Texts returns the option's values as text.
func (c *Command) Texts(name string) []string {
	var texts []string
	for _, v := range c.Values[name] {
		texts = append(texts, v.Text)
	}
	return texts
}

// Set sets an option as if the line had it. source is where the texts are from, for errors.
func (c *Command) Set(name string, texts []string, source string) error {
	b := &binder{Command: c}
	o, role := c.Verb.Option(name), ""
	if o == nil {
		role, o = c.Verb.RoleOption(name)
	}
	for _, text := range texts {
		if o.Kind == KindFlag {
			if text == "0" || text == "false" {
				continue
			}
			text = ""
		}
		if err := b.take(o, role, name, text, o.Kind != KindFlag); err != nil {
			return fmt.Errorf("%s: %w", source, err)
		}
	}
	return nil
}

// Name uses the only word of the command as the name of the cluster.
func (c *Command) Name(given string) error {
	if _, err := c.Verb.Option("cluster").read(given); err != nil {
		return Usagef(c.Verb, "%v", err)
	}
	c.Means(given)
	return nil
}

// Shorten shortens a text of the user so that an error stays one line.
func Shorten(s string, most int) string {
	r := []rune(s)
	if len(r) <= most {
		return s
	}
	return string(r[:most-1]) + "…"
}

// IsContainer reports whether a name is the engine's ID of a container and not a task.
func IsContainer(name string) bool { return strings.HasPrefix(name, "container_") }
