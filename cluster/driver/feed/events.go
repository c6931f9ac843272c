package feed

import (
	"fmt"
	"strings"
)

// Event is what happened: one of the types below.
type Event interface{ isEvent() }

// Reading says how the program of a holder reads the feed: with its first read.
type Reading struct {
	Holder string
	Even   bool // every worker needs equally many batches
}

// LeaseWanted is a producer's request. Attempt identifies the attempt among all of its partition; a higher
// one is newer.
type LeaseWanted struct {
	Holder    string
	Producer  int64 // the holder's number for the connection
	Epoch     int
	Partition int64
	Attempt   int64
	Digest    string // of the partition's first record; "": it has none
}

// LeaseEnded reports that a producer is gone.
type LeaseEnded struct {
	Holder   string
	Producer int64
	Rows     int64  // of the partition that are delivered, those of earlier attempts included
	Complete bool   // these are all
	Digest   string // of these records in their order; "": not known
}

// Held is what a holder has of an epoch, in records since the epoch's beginning.
type Held struct {
	Holder   string
	Epoch    int
	Received int64 // from producers
	MovedIn  int64
	MovedOut int64
	Used     int64 // handed to the program
	Unread   int64 // of these: not read when the program left
	Full     bool  // no slot is free for producers
	Starving bool  // the program waits for records
}

// Moved answers Move: so many records were sent, which may be fewer than ordered.
type Moved struct {
	Holder string
	Epoch  int
	To     string
	Rows   int64
}

// HolderLeft says that a holder's program reads no more.
type HolderLeft struct{ Holder string }

// HolderGone says that a holder attends no more: what it has is lost.
type HolderGone struct{ Holder string }

// EpochFed says that the source has been read to its end for the epoch.
type EpochFed struct {
	Epoch int
	Rows  int64
	Last  bool // no further epoch is fed
}

// SourceFailed ends the feed where its source does: the programs wait for another feed.
type SourceFailed struct{ Reason string }

// Failed ends the feed: a task failed, the client left.
type Failed struct{ Reason string }

func (Reading) isEvent()      {}
func (LeaseWanted) isEvent()  {}
func (LeaseEnded) isEvent()   {}
func (Held) isEvent()         {}
func (Moved) isEvent()        {}
func (HolderLeft) isEvent()   {}
func (HolderGone) isEvent()   {}
func (EpochFed) isEvent()     {}
func (SourceFailed) isEvent() {}
func (Failed) isEvent()       {}

// Action is what the driver does: one of the types below.
type Action interface{ fmt.Stringer }

// Lease answers a producer's request.
type Lease struct {
	Holder   string
	Producer int64
	Skip     int64  // records that were delivered by earlier attempts
	Complete bool   // nothing remains to deliver: another attempt has delivered the partition's Skip records
	Digest   string // of the Skip records in their order: the producer checks that it has the same; "": not known
}

// Allow lets a holder hand out the first Rows records that it has of an epoch, where reading is even.
type Allow struct {
	Holder string
	Epoch  int
	Rows   int64
}

// Move has a holder send records that it has not handed out.
type Move struct {
	Holder string
	Epoch  int
	Rows   int64
	To     string
}

// EpochOver says that no further records of an epoch come to a holder.
type EpochOver struct {
	Holder string
	Epoch  int
	Rows   int64 // that the program gets of it; what is beyond is left out
	Repeat int64 // records that the program repeats to have as many as the others (--uneven pad)
	Most   int64 // the largest Rows of all holders
	Least  int64 // the smallest
}

// Over says to a holder that the feed is over: it takes no records any more.
type Over struct {
	Holder string
	Reason string // why it failed; "": everything was fed, or nobody reads
	More   bool   // the program waits for another feed behind what it has
}

// StopSource has the source stopped: nobody reads what it would bring.
type StopSource struct{ Reason string }

func (a Lease) String() string {
	if a.Complete {
		return fmt.Sprintf("%s/%d: complete, %d records", a.Holder, a.Producer, a.Skip)
	}
	return strings.TrimSuffix(fmt.Sprintf("%s/%d: lease, skip %d of %s", a.Holder, a.Producer, a.Skip, a.Digest), " of ")
}

func (a Allow) String() string {
	return fmt.Sprintf("%s: allow %d of epoch %d", a.Holder, a.Rows, a.Epoch)
}

func (a Move) String() string {
	return fmt.Sprintf("%s: move %d of epoch %d to %s", a.Holder, a.Rows, a.Epoch, a.To)
}

func (a EpochOver) String() string {
	s := fmt.Sprintf("%s: epoch %d over at %d of %d", a.Holder, a.Epoch, a.Rows, a.Most)
	if a.Repeat > 0 {
		s += fmt.Sprintf(", repeat %d", a.Repeat)
	}
	return s
}

func (a Over) String() string {
	s := a.Holder + ": over"
	if a.More {
		s += ", another follows"
	}
	if a.Reason != "" {
		s += ": " + a.Reason
	}
	return s
}

func (a StopSource) String() string { return "stop the source: " + a.Reason }
