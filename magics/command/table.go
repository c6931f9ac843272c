package command

// Table is every verb there is, in the order help lists them.
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

// Help is the verb that lists the others.
func (t *Table) Help() *Verb { return t.Verb("help") }

// names lists the verbs of the notebook (shell false) or the command line.
func (t *Table) names(shell bool) []string {
	var names []string
	for i := range t.Verbs {
		if v := &t.Verbs[i]; (shell && v.Shell) || (!shell && v.Magic) {
			names = append(names, v.Name)
		}
	}
	return names
}

// MaxExecutors bounds a count: beyond it a number is a slip of the keyboard.
const MaxExecutors = 10_000
