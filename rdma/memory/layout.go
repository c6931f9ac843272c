package memory

import (
	"fmt"
	"math"
	"strings"
)

// Class is a number of slots of one size in bytes.
type Class struct {
	Slots int
	Size  int64
}

// Layout is the classes of a segment's slots, one behind the other. Slots are numbered from those of the first class
// on. The slots of the first class begin the segment, so a process that needs these alone maps no more.
type Layout []Class

// MaxClasses is the number of classes that a layout may have.
const MaxClasses = 4

// Slots returns the number of slots.
func (l Layout) Slots() int {
	n := 0
	for _, c := range l {
		n += c.Slots
	}
	return n
}

// Size returns the size of all slots in bytes.
func (l Layout) Size() int64 { return l.Begin(l.Slots()) }

// SlotSize returns the size of a slot in bytes, a multiple of the page size; -1 if there is no such slot.
func (l Layout) SlotSize(slot int) int64 {
	if slot < 0 {
		return -1
	}
	for _, c := range l {
		if slot < c.Slots {
			return c.Size
		}
		slot -= c.Slots
	}
	return -1
}

// String returns "3 slots of 16777216 bytes and 1 of 4096".
func (l Layout) String() string {
	var classes []string
	for i, c := range l {
		text := fmt.Sprintf("%d of %d", c.Slots, c.Size)
		if i == 0 {
			text = fmt.Sprintf("%d slots of %d bytes", c.Slots, c.Size)
		}
		classes = append(classes, text)
	}
	return strings.Join(classes, " and ")
}

// Begin returns where a slot begins in the segment; for the number of slots, where the segment ends.
func (l Layout) Begin(slot int) int64 {
	at := int64(0)
	for _, c := range l {
		n := min(slot, c.Slots)
		at += int64(n) * c.Size
		slot -= n
	}
	return at
}

// rounded returns the layout with sizes of whole pages.
func (l Layout) rounded() Layout {
	whole := make(Layout, len(l))
	for i, c := range l {
		whole[i] = Class{c.Slots, c.Size / pageSize * pageSize}
	}
	return whole
}

// Check returns an error for a layout that no segment can have.
func (l Layout) Check() error {
	if len(l) < 1 || len(l) > MaxClasses {
		return fmt.Errorf("shared memory has slots of 1 to %d sizes, not %d", MaxClasses, len(l))
	}
	left := int64(math.MaxInt64)
	for _, c := range l {
		if c.Slots < 1 || c.Size < pageSize || c.Size%pageSize != 0 {
			return fmt.Errorf("shared memory cannot have %d slots of %d bytes: a slot has one or more whole pages of %d bytes",
				c.Slots, c.Size, pageSize)
		}
		if int64(c.Slots) > left/c.Size {
			return fmt.Errorf("%d slots of %d bytes are larger than any memory", c.Slots, c.Size)
		}
		left -= int64(c.Slots) * c.Size
	}
	return nil
}
