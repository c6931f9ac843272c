// Package aggregated reads the files in which NodeManagers keep their containers' logs
// on HDFS once an application has ended: one a node, a TFile. Hadoop's other format, IFile, is
// left to `yarn logs`: its index is an object in Java's serialization.
//
// A TFile's records are the containers, each a row of named logs. It lies in a BCFile:
// blocks of records, blocks of metadata, an index of those, and at the end where that index
// is. Numbers are of one to nine bytes; a record's value comes in chunks, since its length
// is not known when it begins.
//
// What is in a file was written by others and may be broken: a Reader fails with ErrCorrupt,
// and holds in memory an index and a few pages, whatever lengths the file names.
package aggregated
