package command

// NowHint is whether every line of a cell might say --now instead of waiting for its
// turn, for the kernel to say so.
func (t *Table) NowHint(code string) bool {
	cell, ok := ReadCell(code)
	if !ok {
		return false
	}
	for _, line := range cell.Lines {
		words, err := lex(line, false)
		if err != nil || len(words) == 0 {
			return false
		}
		name, _ := words[0].literal()
		if v := t.Verb(name); v == nil || !v.Now {
			return false
		}
	}
	return true
}
