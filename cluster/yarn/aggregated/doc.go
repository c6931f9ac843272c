// Package aggregated reads aggregated container logs, which NodeManagers upload to HDFS when an application
// has ended: one file in the TFile format for each node. Hadoop's other format, IFile, must be read with
// `yarn logs`: its index is an object in Java's serialization.
//
// A TFile's records are containers, each a sequence of named logs. They are stored in a BCFile: blocks of
// records, blocks of metadata, an index of the metadata blocks, and at the end the offset of that index.
// Integers have one to nine bytes. A record's value is split into chunks, since its length is not known when
// it is begun.
//
// The files may be corrupt: a Reader then returns ErrCorrupt. It holds an index and a few pages in memory,
// whatever lengths the file contains.
package aggregated
