// Names by order, not by path: the built files are the same wherever the sources lie.
module.exports = { optimization: { moduleIds: "natural", chunkIds: "natural" } };
