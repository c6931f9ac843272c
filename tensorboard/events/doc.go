// Package events reads scalars of TensorBoard's event files while they grow, and writes such
// files. They are TFRecords of tensorflow.Event messages (tensorflow/core/util/event.proto) of
// TensorFlow 1 or 2.
package events
