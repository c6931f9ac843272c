package bridge

// gateOutput sends what a verb shows to the cell that called it.
type gateOutput struct {
	caller     *caller
	interrupts chan struct{}
	count      int
}

// ExecutionCount is the n of In[n] of the cell that called; 0 where no cell did.
func (o *gateOutput) ExecutionCount() int { return o.count }

// Errors of sending are those of a caller that is gone, whose context then ends.

// Stdout implements Output.
func (o *gateOutput) Stdout(text string) { o.stream("stdout", text) }

// Stderr implements Output.
func (o *gateOutput) Stderr(text string) { o.stream("stderr", text) }

func (o *gateOutput) stream(name, text string) {
	_ = o.caller.send(map[string]any{"op": "stream", "name": name, "text": text})
}

// Display implements Output.
func (o *gateOutput) Display(id string, data, metadata map[string]any) {
	o.show(id, data, metadata, false)
}

// Update implements Output.
func (o *gateOutput) Update(id string, data, metadata map[string]any) {
	o.show(id, data, metadata, true)
}

func (o *gateOutput) show(id string, data, metadata map[string]any, update bool) {
	if metadata == nil {
		metadata = map[string]any{}
	}
	_ = o.caller.send(map[string]any{"op": "display", "id": id, "data": data, "metadata": metadata, "update": update})
}

// Interrupts implements Output.
func (o *gateOutput) Interrupts() <-chan struct{} { return o.interrupts }
