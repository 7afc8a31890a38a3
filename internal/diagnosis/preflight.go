package diagnosis

var preflightEntries []Entry
