package kernel

import _ "embed" // for mend

// mend is Python that the child runs before any cell.
//
//go:embed mend.py
var mend string
