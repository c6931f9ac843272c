package bridge

// gateOutput sends the output of a verb to the cell that called it.
type gateOutput struct {
	caller     *caller
	interrupts chan struct{}
	count      int
}

// ExecutionCount returns the n of In[n] of the cell that called; 0 if no cell called.
func (o *gateOutput) ExecutionCount() int { return o.count }

// Errors of send are ignored: the caller has closed its connection, which ends its context.

// Stdout implements render.Output.
func (o *gateOutput) Stdout(text string) { o.stream("stdout", text) }

// Stderr implements render.Output.
func (o *gateOutput) Stderr(text string) { o.stream("stderr", text) }

func (o *gateOutput) stream(name, text string) {
	_ = o.caller.send(map[string]any{"op": "stream", "name": name, "text": text})
}

// Display implements render.Output.
func (o *gateOutput) Display(id string, data, metadata map[string]any) {
	o.show(id, data, metadata, false)
}

// Update implements render.Output.
func (o *gateOutput) Update(id string, data, metadata map[string]any) {
	o.show(id, data, metadata, true)
}

func (o *gateOutput) show(id string, data, metadata map[string]any, update bool) {
	if metadata == nil {
		metadata = map[string]any{}
	}
	_ = o.caller.send(map[string]any{"op": "display", "id": id, "data": data, "metadata": metadata, "update": update})
}

// Interrupts implements render.Output.
func (o *gateOutput) Interrupts() <-chan struct{} { return o.interrupts }
