package render

// Writer takes text.
type Writer interface {
	Stdout(text string)
	Stderr(text string)
}

// flusher is a Writer that gathers text. Flush sends it.
type flusher interface{ Flush() }

// Displayer shows MIME bundles.
type Displayer interface {
	// Display shows a MIME bundle; Update replaces what was shown under the id.
	Display(id string, data, metadata map[string]any)
	Update(id string, data, metadata map[string]any)
}

// Output is where a verb shows what it does; a cell of the kernel satisfies it. Its
// methods may be called from one goroutine at a time.
type Output interface {
	Writer
	Displayer
	// Interrupts yields one value for each interrupt of the cell; may be nil.
	Interrupts() <-chan struct{}
}
