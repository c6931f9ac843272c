// Package events reads the scalars in TensorBoard's event files as they grow: the
// framing of TFRecord around tensorflow.Event messages
// (tensorflow/core/util/event.proto), as written by TensorFlow 1 and 2.
package events
