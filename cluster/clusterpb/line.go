package clusterpb

import "strings"

// LineJSON is a line of a task as the front end gets it: by the panel's comm and by the WebSocket of package lines.
type LineJSON struct {
	Task      string `json:"task"`
	Number    uint64 `json:"number"`
	Time      int64  `json:"time"`  // Unix time in ms
	Error     bool   `json:"error"` // on standard error
	Text      string `json:"text"`
	Carriage  bool   `json:"carriage,omitempty"`
	Continues bool   `json:"continues,omitempty"` // the task's next line of this stream continues it
}

// ForJSON returns a line for the front end. A text of more than longest characters is cut; 0: none is.
func (x *Line) ForJSON(longest int) LineJSON {
	text := x.GetText()
	if longest > 0 && len(text) > longest {
		if r := []rune(text); len(r) > longest {
			text = string(r[:longest]) + " …"
		}
	}
	return LineJSON{
		Task: x.GetTask(), Number: x.GetSeq(), Time: x.GetUnixNano() / 1e6, Error: x.GetStream() == Line_STDERR,
		Text: strings.ToValidUTF8(text, "\uFFFD"), Carriage: x.GetCarriage(), Continues: x.GetContinues(),
	}
}
