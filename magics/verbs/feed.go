package verbs

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/magics/command"
	"github.com/tfcluster/tfcluster/magics/feeding"
	"github.com/tfcluster/tfcluster/magics/render"
	"github.com/tfcluster/tfcluster/magics/result"
	"github.com/tfcluster/tfcluster/magics/session"
)

// feedOptions are those of every verb that feeds data.
func feedOptions() []command.Option {
	return append([]command.Option{
		{Name: "columns", Kind: command.KindText, Meta: "A,B", Repeat: true, Help: "columns to feed; default: all"},
		{
			Name: "label", Kind: command.KindText, Meta: "COLUMN",
			Help: "column that is the label: as_dataset and as_iterable give (features, label)",
		},
		{
			Name: "binary", Kind: command.KindText, Meta: "COLUMN:TYPE[SHAPE]", Repeat: true,
			Help: "binary column whose bytes are an array, such as image:uint8[28,28,1]",
		},
		{
			Name: "cast", Kind: command.KindChoice, Choices: []string{"float32", "float64"},
			Help: "floating-point type of the arrays; default: as in DATA",
		},
		{
			Name: "nan", Kind: command.KindChoice, Choices: []string{"feed", "refuse"}, Default: "feed",
			Help: "NaN among floating-point numbers: feed it, and say how many there were, or refuse DATA",
		},
	}, followOptions()...)
}

var trainVerb = row{
	Verb: command.Verb{
		Name: "train", Summary: "feed data and wait; without DATA the same as wait", Magic: true, Words: "[DATA]",
		MaxWords: 1,
		Options: append([]command.Option{
			{Name: "epochs", Kind: command.KindCount, Max: 1_000_000, Default: "1", Help: "passes over DATA"},
			{Name: "steps", Kind: command.KindCount, Max: 1 << 40, Help: "batches that each worker reads at most"},
			{
				Name: "shuffle", Kind: command.KindCount, Max: 1 << 40, Meta: "N",
				Help: "shuffle within a buffer of N records on each worker",
			},
			{Name: "drop-remainder", Kind: command.KindFlag, Help: "leave out a batch that is not full"},
			{
				Name: "uneven", Kind: command.KindChoice, Choices: []string{"drop", "pad"}, Default: "drop", Help: "what to do " +
					"with records that not every worker can have of an epoch: leave them out, or repeat some with weight 0",
			},
			{Name: "more", Kind: command.KindFlag, Help: "keep the feed open for another train"},
			{Name: "detach", Kind: command.KindFlag, Help: "do not wait"},
		}, feedOptions()...), Example: "train df --epochs 3 --columns image --label y",
		Long: "DATA is the name of a Spark or pandas DataFrame, an Arrow table, a NumPy array, a dict of arrays, " +
			"or an iterator of batches. " +
			"The program of the run reads it by ctx.get_data_feed(). The first interrupt stops the run, " +
			"a second one kills it, as in wait.",
		Operand: command.OperandData,
	},
	run: (*invocation).train, ownInterrupts: true,
}

var evaluateVerb = row{
	Verb: command.Verb{
		Name: "evaluate", Summary: "feed data with ctx.mode == \"evaluate\"; returns the metrics", Magic: true,
		Words: "DATA", MaxWords: 1, Operand: command.OperandData, Options: feedOptions(),
		Example: "evaluate test_df --columns image --label y",
		Long: "The value is a dict: of each task what main_fun returns if that is a dict, else what the last " +
			"model.evaluate gave, else the last ctx.report; the mean over the tasks, weighted by their records.",
	},
	run: (*invocation).evaluate, ownInterrupts: true,
}

var inferenceVerb = row{
	Verb: command.Verb{
		Name: "inference", Summary: "feed data with ctx.mode == \"inference\"; returns it with a column of predictions",
		Magic: true, Words: "DATA", MaxWords: 1, Operand: command.OperandData,
		Example: "inference df --columns image --keep id",
		Options: append([]command.Option{
			{Name: "into", Short: "o", Kind: command.KindText, Meta: "NAME", Help: "put the value under this name, too"},
			{
				Name: "keep", Kind: command.KindText, Meta: "A,B", Repeat: true,
				Help: "columns of DATA that the value has; default: all",
			},
			{
				Name: "output", Kind: command.KindText, Meta: "PATH",
				Help: "write Parquet to this path instead of keeping the value",
			},
		}, feedOptions()...),
		Long: "The program gives one result for each record, by feed.results(batch) or feed.batch_results(list), " +
			"in the order in which it received the records. " +
			"The value is the same kind of object as DATA: its columns and `prediction`, or one column for each name of the " +
			"results. " +
			"Rows have the order of DATA, in a Spark DataFrame within each partition. With --output the value is a Spark " +
			"DataFrame that reads PATH, or PATH.",
	},
	run: (*invocation).inference, ownInterrupts: true,
}

// train feeds data to the run and holds the cell until the run ends.
func (inv *invocation) train(ctx context.Context) (result.Value, error) {
	if len(inv.Words) == 0 {
		return inv.wait(ctx)
	}
	m, err := inv.openFeed(ctx, "train", inv.Text("uneven"))
	if err != nil {
		return nil, err
	}
	if inv.Has("detach") {
		inv.detached.Keep(m.Name, inv.feed)
		st, err := m.Status(ctx)
		if err != nil {
			return nil, m.Explain(err)
		}
		inv.shown().Show(true, func() render.Bundle {
			return render.Line(
				fmt.Sprintf("run %d is fed; %s shows how far it is", st.GetRun().GetId(), inv.session.Say("wait")))
		})
		return result.OfRun(m.Name, st.GetRun()), nil
	}
	return inv.waitLive(ctx, m)
}

// openFeed begins to feed the data that the line names.
func (inv *invocation) openFeed(ctx context.Context, mode, uneven string) (*session.Handle, error) {
	if len(inv.Words) == 0 {
		return nil, command.Usagef(inv.Verb, "the name of the data is missing, as in: %s DATA", mode)
	}
	m, err := inv.session.Pick(ctx, inv.Command)
	if err != nil {
		return nil, err
	}
	m.Hold()
	opening, cancel := interruptible(ctx, inv.out)
	defer cancel()
	plan := map[string]any{
		"label": inv.Text("label"), "binary": inv.Texts("binary"), "cast": inv.Text("cast"), "steps": inv.Count("steps", 0),
		"shuffle": inv.Count("shuffle", 0), "drop_remainder": inv.Has("drop-remainder"), "columns": inv.Texts("columns"),
		"keep": inv.Texts("keep"), "nan": inv.Text("nan"), "output": inv.Text("output"), "into": inv.Text("into"),
	}
	feedCtx, end := context.WithCancel(inv.session.Context())
	watching := context.AfterFunc(opening, end) // an interrupt ends the waiting
	feed, err := feeding.Open(feedCtx, inv.py, m, feeding.Request{
		Data: inv.Words[0], Mode: mode, Uneven: uneven, Epochs: int(inv.Count("epochs", 1)),
		More: inv.Has("more"), Plan: plan,
	}, func(text string) { inv.shown().Show(true, func() render.Bundle { return render.Bundle{}.Busy(text) }) })
	if watching(); opening.Err() != nil {
		end()
		if feed != nil { // it was open already
			feed.Forget(false)
		}
		return nil, &result.Interrupted{Text: "nothing was fed"}
	}
	if err != nil {
		end()
		return nil, err
	}
	inv.feed = feed
	inv.session.Go(func() {
		defer end()
		feed.Run(feedCtx)
	})
	return m, nil
}

// feedEnded is closed at the end of the feed; nil if there is none to hear.
func (inv *invocation) feedEnded() <-chan struct{} {
	if inv.feed == nil || inv.fed {
		return nil
	}
	return inv.feed.Ended()
}

// evaluate feeds data to the run, waits for its end and returns the means of its metrics.
func (inv *invocation) evaluate(ctx context.Context) (result.Value, error) {
	m, err := inv.openFeed(ctx, "evaluate", "spread")
	if err != nil {
		return nil, err
	}
	value, err := inv.waitLive(ctx, m)
	if err != nil {
		return nil, err
	}
	means := map[string]float64{}
	if run, ok := value.(*result.RunValue); ok {
		means = run.Means()
	}
	if len(means) == 0 {
		inv.out.Stderr(
			"no task gave a metric that is a finite number: return a dict from main_fun, or call model.evaluate or ctx.report\n")
	}
	render.Display(inv.out, metricsView(means))
	return &result.Answer{Data: result.Floats(means)}, nil
}

// feedErr returns how the feed has ended, of which nobody else needs to hear.
func (inv *invocation) feedErr() error {
	inv.fed = true
	inv.detached.Drop(inv.feed)
	return inv.feed.Err()
}

// awaitFeed waits for the end of the feed of a run that is over: its last numbers. They are no reason to fail the cell
// of a run that has ended well: where Python does not end the feed within limit, it says so and returns nil. Inference
// needs more than numbers, and fails.
func (inv *invocation) awaitFeed(ctx context.Context, limit time.Duration) error {
	if inv.feed == nil || inv.fed {
		return nil
	}
	select {
	case <-inv.feed.Ended():
		return inv.feedErr()
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(limit):
	}
	const text = "the run is over, but the notebook's Python has not ended its feed: other code keeps it busy"
	if inv.Verb.Name == "inference" {
		return &result.ClusterError{
			Text:   text + ", and the predictions are not known",
			Remedy: "interrupt that code, start the program again, and run this cell again",
		}
	}
	inv.out.Stderr(text + "\n")
	return nil
}

// inference feeds data to the run, waits for its end and returns the data with the results of the records.
func (inv *invocation) inference(ctx context.Context) (result.Value, error) {
	m, err := inv.openFeed(ctx, "inference", "spread")
	if err != nil {
		return nil, err
	}
	if _, err = inv.waitLive(ctx, m); err == nil { // the feed has ended, too
		var value *result.Object
		if value, err = inv.feed.Predictions(ctx, inv.Text("into")); err == nil {
			return value, nil // Python forgets it when it puts the object in its place
		}
	}
	inv.feed.Forget(false)
	return nil, err
}

// metricsView shows what an evaluation found.
func metricsView(means map[string]float64) render.Bundle {
	t := render.Table{Head: []string{"metric", "mean"}}
	for _, name := range slices.Sorted(maps.Keys(means)) {
		t.Rows = append(t.Rows, []render.Cell{{Text: name}, {Text: render.Number(means[name])}})
	}
	return t.Bundle()
}

// feedLine says how far a feed is, or how far it came: "fed 38,400 of ~60,000 records · epoch 2 of 3 · 41,000 records/s
// · …". nan is the number of NaN by column.
func feedLine(p *clusterpb.FeedProgress, nan map[string]int64, over bool) string {
	parts := []string{"fed " + render.Plural(p.GetFed(), "record")}
	if total := p.GetTotal(); total > 0 {
		parts[0] = fmt.Sprintf("fed %s of %s records", render.Thousands(p.GetFed()),
			render.Thousands(total*int64(max(p.GetEpochs(), 1))))
	}
	if p.GetEpochs() > 1 {
		parts = append(parts, fmt.Sprintf("epoch %d of %d", p.GetEpoch(), p.GetEpochs()))
	}
	if rate := int64(p.GetPerSecond()); rate > 0 && !over {
		parts = append(parts, render.Thousands(rate)+" records/s")
	}
	switch {
	case over:
	case p.GetBrake() == "the program":
		parts = append(parts, "the program is slower than the source")
	case p.GetBrake() == "the source":
		parts = append(parts, "the source is slower than the program")
	}
	if n := p.GetLeftOut(); n > 0 {
		parts = append(parts, render.Plural(n, "record")+" left out")
	}
	if over && p.GetUnread() > 0 {
		parts = append(parts, notRead(p))
	}
	if len(nan) > 0 {
		parts = append(parts, countsOfNaN(nan))
	}
	return strings.Join(parts, " · ")
}

// notRead says that programs left before the end of the source, and how many records that was, where the number of all
// is known.
func notRead(p *clusterpb.FeedProgress) string {
	if p.GetTotal() == 0 {
		return "the rest was not read"
	}
	return render.Plural(p.GetTotal()*int64(max(p.GetEpochs(), 1))-p.GetFed()-p.GetLeftOut(), "record") + " not read"
}

// countsOfNaN returns the numbers of NaN by column, of the first few: "17 NaN in x, 2 in y".
func countsOfNaN(nan map[string]int64) string {
	const shown = 4
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(nan)) {
		if len(parts) == shown {
			parts = append(parts, fmt.Sprintf("and in %d more columns", len(nan)-shown))
			break
		}
		part := render.Thousands(nan[name])
		if len(parts) == 0 {
			part += " NaN"
		}
		if name != "" {
			part += " in " + name
		}
		parts = append(parts, part)
	}
	return strings.Join(parts, ", ")
}
