package command

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tfcluster/tfcluster/cluster"
)

// UsageError is an error in a line. It is shown as one line without a traceback.
type UsageError struct {
	Verb string // "" if there is no such verb
	Text string
}

// Error returns the line to show.
func (e *UsageError) Error() string {
	if e.Verb == "" {
		return e.Text
	}
	return e.Verb + ": " + e.Text
}

// Usagef returns a UsageError of a verb; v may be nil.
func Usagef(v *Verb, format string, a ...any) error {
	e := &UsageError{Text: fmt.Sprintf(format, a...)}
	if v != nil {
		e.Verb = v.Name
	}
	return e
}

// Command is a parsed line.
type Command struct {
	Verb     *Verb
	Words    []string // operands; of start and run the arguments of the program
	Program  string   // of start and run
	Cell     string   // body of %%tfcluster
	HasCell  bool
	Help     bool // the line asks for help
	Typed    bool // the line is in a cell: names are names of the notebook
	Warnings []string

	Values map[string][]Value          // by name of the option
	Roles  map[string]map[string]Value // --ps-memory: by role, then by option
	Seen   map[string]bool             // the options in the line, role options by full name
}

// token is a word after expansion.
type token struct {
	text   string
	quoted bool
}

// Argv parses the words of a command without expansion. shell: it is from the command line.
func (t *Table) Argv(words []string, shell bool) (*Command, error) {
	tokens := make([]token, len(words))
	for i, w := range words {
		tokens[i].text = w
	}
	return t.parse(tokens, nil, shell)
}

// parse parses the words of a line. shell: it is from the command line, which has other verbs.
func (t *Table) parse(tokens []token, cell *string, shell bool) (*Command, error) {
	if len(tokens) == 0 || (!tokens[0].quoted && asksHelp(tokens[0].text)) {
		return &Command{Verb: t.Help(), Help: true}, nil
	}
	name, help := tokens[0].text, false
	if !tokens[0].quoted {
		name = strings.TrimRight(name, "?")
		help = name != tokens[0].text
	}
	v := t.Verb(name)
	if v == nil || (shell && !v.Shell) || (!shell && !v.Magic) {
		return nil, t.unknownVerb(name, shell)
	}
	c := &Command{
		Verb: v, Help: help, Values: map[string][]Value{}, Roles: map[string]map[string]Value{}, Seen: map[string]bool{},
	}
	if cell != nil && !help {
		if !v.Cell {
			return nil, Usagef(v, "%%%%tfcluster takes a cell's body for start only; write %%tfcluster %s", v.Name)
		}
		c.Cell, c.HasCell = *cell, true
	}
	b := &binder{Command: c, tokens: tokens[1:]}
	if err := b.bind(); err != nil {
		return nil, err
	}
	if c.Help {
		return c, nil
	}
	return c, c.check()
}

func (t *Table) unknownVerb(name string, shell bool) error {
	if shell && slices.Contains(t.names(false), name) {
		return Usagef(nil, "%s is a notebook's verb: in a shell, tfcluster run reserves, starts, waits and shuts down", name)
	}
	names := t.names(shell)
	if near := Nearest(name, names); near != "" {
		return Usagef(nil, "no verb %q: did you mean %s?", name, near)
	}
	return Usagef(nil, "no verb %q: the verbs are %s", name, strings.Join(names, ", "))
}

// binder assigns words to options and operands.
type binder struct {
	*Command
	tokens []token
	at     int
	names  []string // words that are not options, the program first
	plain  bool     // after --
}

func (b *binder) bind() error {
	for b.at < len(b.tokens) {
		t := b.tokens[b.at]
		b.at++
		if b.programs() {
			b.warn(t.text)
			b.names = append(b.names, t.text)
			continue
		}
		if err := b.word(t); err != nil || b.Help {
			return err
		}
	}
	return b.place()
}

// programs reports whether the words that follow are arguments of the program.
func (b *binder) programs() bool {
	return b.Verb.Program && (len(b.names) > 0 || (b.plain && b.HasCell))
}

func (b *binder) word(t token) error {
	switch {
	case !t.quoted && !b.plain && (t.text == "?" || IsHelp(t.text)):
		b.Help = true
	case b.plain || t.text == "-" || !strings.HasPrefix(t.text, "-"):
		b.names = append(b.names, t.text)
	case t.text == "--":
		b.plain = true
	case strings.HasPrefix(t.text, "--"):
		return b.long(t.text[2:])
	default:
		return b.short(t.text[1:])
	}
	return nil
}

func (b *binder) long(text string) error {
	name, given, hasValue := strings.Cut(text, "=")
	if strings.HasSuffix(name, "?") {
		b.Help = true
		return nil
	}
	o := b.Verb.Option(name)
	if len(name) == 1 {
		o = nil
	}
	role := ""
	if o == nil {
		role, o = b.Verb.RoleOption(name)
	}
	if o == nil {
		return b.unknownOption("--" + name)
	}
	if o.PerRole == OnlyFor && role == "" {
		return Usagef(b.Verb, "--%s is for one role, whose name it needs, as in --worker-%s %s", name, name, o.meta())
	}
	return b.take(o, role, name, given, hasValue)
}

// short parses -f, -n 100, -n100 and -fn 100.
func (b *binder) short(text string) error {
	for i := range len(text) {
		o := b.Verb.Option(text[i : i+1])
		if o == nil || o.Short == "" {
			return b.unknownOption("-" + text)
		}
		if o.takesValue() && i+1 < len(text) {
			return b.take(o, "", o.Name, strings.TrimPrefix(text[i+1:], "="), true)
		}
		if err := b.take(o, "", o.Name, "", false); err != nil {
			return err
		}
	}
	return nil
}

func (b *binder) take(o *Option, role, name, given string, hasValue bool) error {
	switch {
	case o.Kind == KindFlag && hasValue:
		return Usagef(b.Verb, "--%s takes no value: leave out = and what follows it", name)
	case o.takesValue() && !hasValue:
		if b.at >= len(b.tokens) {
			return Usagef(b.Verb, "--%s needs a value: --%s %s", name, name, o.meta())
		}
		if t := b.tokens[b.at]; t.text == "?" && !t.quoted {
			b.Help = true
			return nil
		}
		given = b.tokens[b.at].text
		b.at++
	case o.Bare != "" && !hasValue:
		given = o.Bare
		if b.at < len(b.tokens) {
			next := b.tokens[b.at].text
			if _, err := o.read(next); err == nil {
				return Usagef(b.Verb, "--%s %s: write --%s=%s, without a space", name, next, name, next)
			}
		}
	}
	if b.Seen[name] && !o.Repeat {
		return Usagef(b.Verb, "--%s is given twice: give it once", name)
	}
	b.Seen[name] = true
	val, err := o.read(given)
	if err != nil {
		return Usagef(b.Verb, "--%s: %v", name, err)
	}
	if role != "" {
		if b.Roles[role] == nil {
			b.Roles[role] = map[string]Value{}
		}
		b.Roles[role][o.Name] = val
		return nil
	}
	b.Values[o.Name] = append(b.Values[o.Name], val)
	return nil
}

func (b *binder) unknownOption(given string) error {
	var names []string
	for i := range b.Verb.Options {
		if b.Verb.Options[i].PerRole != OnlyFor {
			names = append(names, "--"+b.Verb.Options[i].Name)
		}
	}
	if near := Nearest(given, names); near != "" {
		return Usagef(b.Verb, "no option %s: did you mean %s?", given, near)
	}
	if len(names) == 0 {
		return Usagef(b.Verb, "no option %s: %s takes none", given, b.Verb.Name)
	}
	return Usagef(b.Verb, "no option %s: write %s; help %s lists the options", given, b.Verb.Synopsis(), b.Verb.Name)
}

// warn adds a warning about an argument of the program that looks like an option of ours.
func (b *binder) warn(text string) {
	name, ok := strings.CutPrefix(text, "--")
	if !ok {
		return
	}
	name, _, _ = strings.Cut(name, "=")
	if o := b.Verb.Option(name); o != nil && o.Name == name {
		program := "the program"
		if len(b.names) > 0 && !b.HasCell {
			program = b.names[0]
		}
		b.Warnings = append(b.Warnings, fmt.Sprintf("--%s follows %s and is passed to it as an argument; to pass it to %s, "+
			"write it before %s", name, program, b.Verb.Name, program))
	}
}

// place assigns the operands: program, arguments, words.
func (b *binder) place() error {
	b.Words = b.names
	v := b.Verb
	if v.Program && !b.HasCell && len(b.names) > 0 {
		b.Program, b.Words = b.names[0], b.names[1:]
		return nil
	}
	if v.MaxWords >= 0 && len(b.names) > v.MaxWords {
		hint := ""
		if o := v.Option("task"); o != nil {
			if task, err := cluster.ParseTask(b.names[v.MaxWords]); err == nil {
				hint = fmt.Sprintf("; one task: --task %s", task)
			}
		}
		return Usagef(v, "%q is one word too many: %s%s", b.names[v.MaxWords], v.Synopsis(), hint)
	}
	return nil
}

// check checks combinations of options.
func (c *Command) check() error {
	v := c.Verb
	if v.Check != nil {
		if err := v.Check(c); err != nil {
			return err
		}
	}
	if !v.Program {
		return nil
	}
	again := c.Has("again")
	switch {
	case again && (c.Program != "" || c.HasCell || len(c.Words) > 0):
		return Usagef(v, "--again uses the last program and its arguments: give no others")
	case again && c.Has("args"):
		return Usagef(v, "--again takes the last arguments too: leave --args out")
	case c.Has("args") && len(c.Words) > 0:
		return Usagef(v, "--args %s and arguments (%s) exclude each other: give one of the two", c.Text("args"),
			strings.Join(c.Words, " "))
	case c.HasCell && strings.TrimSpace(c.Cell) == "":
		return Usagef(v, "the cell has no program below its first line: write one, or name one in %%tfcluster start")
	}
	return nil
}

// Synopsis returns the usage of the verb in one line.
func (v *Verb) Synopsis() string {
	s := v.Name
	if len(v.Options) > 0 {
		s += " [options]"
	}
	if v.Words != "" {
		s += " " + v.Words
	}
	return s
}

// Nearest returns the name most similar to the text, or "" if none is similar.
func Nearest(given string, names []string) string {
	best, at := 3, ""
	if len(strings.TrimLeft(given, "-")) <= 3 {
		best = 2
	}
	for _, n := range names {
		if d := distance(given, n); d < best {
			best, at = d, n
		}
	}
	if at == "" && len(strings.TrimLeft(given, "-")) >= 3 {
		if i := slices.IndexFunc(names, func(n string) bool { return strings.HasPrefix(n, given) }); i >= 0 {
			return names[i]
		}
	}
	return at
}

// distance returns the number of typing errors between two short words: a missing, an additional
// or a wrong letter, or two exchanged letters.
func distance(a, b string) int {
	const longest = 64
	if len(a) > longest || len(b) > longest {
		return longest
	}
	var before, last, row [longest + 1]int
	for j := range len(b) + 1 {
		row[j] = j
	}
	for i := range len(a) {
		before, last = last, row
		row[0] = i + 1
		for j := range len(b) {
			cost := last[j]
			if a[i] != b[j] {
				cost++
			}
			row[j+1] = min(cost, last[j+1]+1, row[j]+1)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				row[j+1] = min(row[j+1], before[j-1]+1)
			}
		}
	}
	return row[len(b)]
}
