// Package command is the language of %tfcluster: a table of verbs and their options ([Table]),
// and what it drives: parsing and usage errors, help, completion, Shift-Tab, the reference in the
// documentation. Which verbs there are, and what they do, is told by whoever makes the table.
package command
