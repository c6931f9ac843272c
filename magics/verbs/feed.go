package verbs

import "github.com/tfcluster/tfcluster/magics/command"

// notYetFeed is the error of verbs and options that feed data.
const notYetFeed = "not yet: this version does not feed data; read it in main_fun, with tf.data for instance, and use start and wait"

func trainVerb() row {
	return row{
		Verb: command.Verb{
			Name: "train", Summary: "feed data and wait; without DATA the same as wait", Magic: true, Words: "[DATA]", MaxWords: 1,
			Options: append([]command.Option{
				{Name: "epochs", Kind: command.KindCount, Max: 1_000_000, NotYet: notYetFeed, Help: "passes over DATA"},
				{Name: "steps", Kind: command.KindCount, Max: 1 << 40, NotYet: notYetFeed, Help: "steps at most"},
				{Name: "more", Kind: command.KindFlag, NotYet: notYetFeed, Help: "another train or inference may follow"},
				{Name: "detach", Kind: command.KindFlag, NotYet: notYetFeed, Help: "do not wait"},
				{Name: "schema", Kind: command.KindText, NotYet: notYetFeed, Help: "of TFRecord or CSV files"},
			}, followOptions()...), Example: "train",
			Operand: command.OperandData,
		},
		run: (*invocation).wait, ownInterrupts: true,
	}
}

func evaluateVerb() row {
	return row{
		Verb: command.Verb{
			Name: "evaluate", Summary: "feed data with ctx.mode == \"evaluate\"", Magic: true,
			Words: "DATA", MaxWords: -1, NotYet: notYetFeed, Operand: command.OperandData,
		},
	}
}

func inferenceVerb() row {
	return row{
		Verb: command.Verb{
			Name: "inference", Summary: "feed data and collect predictions", Magic: true,
			Words: "DATA", MaxWords: -1, NotYet: notYetFeed, Operand: command.OperandData,
		},
	}
}
