// Package gang decides when a reservation that is half filled gives back what it holds, so
// that others which wait for it are filled, and when it asks again.
package gang
