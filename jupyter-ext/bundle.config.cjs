// Modules are named by their path: a linked node_modules must not change the built files.
module.exports = { resolve: { symlinks: false }, resolveLoader: { symlinks: false } };
