package yarn

// Clean is for the tests on a real HDFS.
var Clean = cleanCache
