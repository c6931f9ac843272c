package command

// Table is the list of all verbs, in the order of help.
type Table struct{ Verbs []Verb }

// Verb finds a verb by its name.
func (t *Table) Verb(name string) *Verb {
	for i := range t.Verbs {
		if t.Verbs[i].Name == name {
			return &t.Verbs[i]
		}
	}
	return nil
}

// Help returns the verb help.
func (t *Table) Help() *Verb { return t.Verb("help") }

// names returns the verbs of the notebook, or with shell those of the command line.
func (t *Table) names(shell bool) []string {
	var names []string
	for i := range t.Verbs {
		if v := &t.Verbs[i]; (shell && v.Shell) || (!shell && v.Magic) {
			names = append(names, v.Name)
		}
	}
	return names
}

// MaxExecutors is the maximum of a count; a larger number is a typing error.
const MaxExecutors = 10_000
