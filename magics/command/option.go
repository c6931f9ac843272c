package command

import (
	"cmp"
	"slices"
	"strings"
)

// Kind is the type of an option's value: how it is parsed, checked and completed.
type Kind int

// Kinds of options.
const (
	KindFlag        Kind = iota // no value
	KindText                    // any words
	KindCount                   // whole number from 0 to Max
	KindNumber                  // number above 0
	KindSize                    // bytes: 512m, 4g
	KindDuration                // 30s, 10m, 2h
	KindIdle                    // a duration or never
	KindKeyValue                // K=V
	KindEnv                     // K=V, or K alone: taken from the notebook's environment
	KindRoleCount               // ROLE=N
	KindRoles                   // roles' names: a,b
	KindChoice                  // one of Choices
	KindTask                    // worker:1
	KindShow                    // all, chief or a task
	KindCluster                 // a cluster's name
	KindPastCluster             // a cluster's name, also of one that is over
	KindRun                     // number of a run
	KindResume                  // number of a run, or last
	KindPattern                 // regular expression (RE2)
	KindSince                   // a duration back, or a time of day, or RFC 3339
	KindObject                  // a name of the notebook
	KindPath                    // a file or folder of this machine
)

// Option is one row of the table.
type Option struct {
	Name    string // without dashes
	Short   string // one letter, or ""
	Kind    Kind
	Meta    string // placeholder of the value in help
	Default string // for help; the verb applies it
	Choices []string
	Max     int64  // of KindCount
	Bare    string // value of the option without "="; if not "", a value needs "="
	Repeat  bool
	Help    string
	Engine  string  // key in the request to the backend; "": the option is not passed to it
	Only    string  // backends that have this option; "": all
	Group   string  // heading in help, "" = the verb's own
	Common  bool    // listed first in help, without its group's heading
	PerRole PerRole // whether there is a form for one role: --ps-memory
}

// PerRole states whether an option has a form for one role, such as --ps-memory.
type PerRole int

// Forms of an option.
const (
	ForAll  PerRole = iota // --memory only
	AlsoFor                // --memory and --ps-memory
	OnlyFor                // --ps-memory only
)

// IsFor reports whether a backend has the option.
func (o *Option) IsFor(backend string) bool {
	return o.Only == "" || slices.Contains(strings.Fields(o.Only), backend)
}

// takesValue reports whether the next word is the option's value.
func (o *Option) takesValue() bool { return o.Kind != KindFlag && o.Bare == "" }

// usage returns the option with the placeholder of its value: --memory SIZE.
func (o *Option) usage() string {
	s := "--" + o.Name
	if o.PerRole == OnlyFor {
		s = "--ROLE-" + o.Name
	}
	if o.Short != "" {
		s = "-" + o.Short + ", " + s
	}
	switch {
	case o.Kind == KindFlag:
		return s
	case o.Bare != "":
		return s + "[=" + o.meta() + "]"
	default:
		return s + " " + o.meta()
	}
}

func (o *Option) meta() string {
	return cmp.Or(o.Meta, strings.Join(o.Choices, "|"), metas[o.Kind], "NAME")
}

// metas are the placeholders of values that are not names.
var metas = map[Kind]string{
	KindCount: "N", KindNumber: "N", KindRun: "N", KindSize: "SIZE", KindDuration: "T", KindIdle: "T", KindSince: "T",
	KindKeyValue: "K=V", KindEnv: "K=V|K", KindRoleCount: "ROLE=N", KindRoles: "ROLE,…",
	KindTask: "TASK", KindShow: "TASK", KindPath: "PATH", KindPattern: "RE",
}

// Operand is the type of a verb's words, for completion.
type Operand int

// Types of words.
const (
	OperandNone    Operand = iota
	OperandProgram         // a name of the notebook, or a script
	OperandData            // a name of the notebook, or a path
	OperandCluster
	OperandVerb
	OperandTask
)

// Verb is one verb of %tfcluster and of the command line.
type Verb struct {
	Name    string
	Summary string // one line
	Words   string // positional words in help: "PROGRAM [words]"
	Long    string // paragraphs for help
	Options []Option
	Example string

	Now      bool // --now is allowed
	Program  bool // options stand before the first word; all later words are arguments of the program
	Cell     bool // %%tfcluster VERB takes the cell's body
	MaxWords int  // maximum number of words; -1: any number
	Shell    bool // available on the command line
	Magic    bool // available in a notebook
	Operand  Operand
	// Check checks combinations of options; may be nil.
	Check func(*Command) error
}

// Option finds an option by its long or short name.
func (v *Verb) Option(name string) *Option {
	for i := range v.Options {
		if v.Options[i].Name == name || (len(name) == 1 && v.Options[i].Short == name) {
			return &v.Options[i]
		}
	}
	return nil
}

// RoleOption finds the option of a name such as --ps-memory: the role, and the option without
// the role.
func (v *Verb) RoleOption(name string) (role string, o *Option) {
	for i := range v.Options {
		o := &v.Options[i]
		if role, ok := strings.CutSuffix(name, "-"+o.Name); ok && role != "" && o.PerRole != ForAll {
			return role, o
		}
	}
	return "", nil
}

// Lookup finds an option by name, also in its form for a role.
func (v *Verb) Lookup(name string) *Option {
	if o := v.Option(name); o != nil {
		return o
	}
	_, o := v.RoleOption(name)
	return o
}
