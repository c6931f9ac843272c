package command

import (
	"fmt"
	"strings"
)

// Usage returns the text of help, with one line for each verb.
func (t *Table) Usage(shell bool) string {
	var b strings.Builder
	b.WriteString(prefix(shell) + "VERB [options] [words]\n\n")
	for i := range t.Verbs {
		v := &t.Verbs[i]
		if (shell && !v.Shell) || (!shell && !v.Magic) {
			continue
		}
		fmt.Fprintf(&b, "  %-12s %s\n", v.Name, v.Summary)
	}
	b.WriteString("\n")
	if shell {
		b.WriteString("tfcluster help VERB shows a verb's options.\n")
		return b.String()
	}
	b.WriteString("%tfcluster VERB ? shows a verb's options. $name and {expression} stand for the notebook's values, " +
		"each one word;\n" +
		"inside single quotes they are literal, as $$, {{ and }} are elsewhere. -c NAME picks a cluster. " +
		"--now runs a line at\n" +
		"once, beside a cell that is busy.\n")
	return b.String()
}

func prefix(shell bool) string {
	if shell {
		return "tfcluster "
	}
	return "%tfcluster "
}

// VerbUsage returns the help of one verb.
func (t *Table) VerbUsage(name string, shell bool) (string, error) {
	v := t.Verb(name)
	if v == nil {
		return "", t.unknownVerb(name, shell)
	}
	var b strings.Builder
	b.WriteString(prefix(shell) + v.Synopsis() + "\n")
	if v.Cell && !shell {
		b.WriteString("%%tfcluster " + v.Name + " [options] [words]      the cell's body is the program\n")
	}
	b.WriteString("\n" + capital(v.Summary) + ".")
	if v.Long != "" {
		b.WriteString(" " + v.Long)
	}
	b.WriteString("\n")
	b.WriteString(optionLines(v.Options))
	if v.Example != "" {
		b.WriteString("\nFor example: " + prefix(shell) + v.Example + "\n")
	}
	return b.String(), nil
}

// optionLines returns the lines of options: the common ones first, then those of each group below its heading.
func optionLines(options []Option) string {
	var b, rest strings.Builder
	group, first := "", true
	for i := range options {
		switch o := &options[i]; {
		case o.Common:
			b.WriteString(optionLine(o))
		case o.Group != group || first:
			heading := "\n"
			if o.Group != "" {
				heading += o.Group + ":\n"
			}
			rest.WriteString(heading + optionLine(o))
			group, first = o.Group, false
		default:
			rest.WriteString(optionLine(o))
		}
	}
	if b.Len() == 0 {
		return rest.String()
	}
	return "\n" + b.String() + rest.String()
}

func optionLine(o *Option) string {
	help := o.Help
	if o.Default != "" {
		help += "; default " + o.Default
	}
	if o.Repeat {
		help += " (may be repeated)"
	}
	if o.Only != "" {
		help += " (--backend " + strings.ReplaceAll(o.Only, " ", ", ") + ")"
	}
	return fmt.Sprintf("  %-34s %s\n", o.usage(), help)
}

func capital(s string) string {
	if s == "" {
		return s
	}
	return strings.ToUpper(s[:1]) + s[1:]
}
