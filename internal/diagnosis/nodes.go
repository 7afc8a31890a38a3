package diagnosis

var nodeEntries []Entry
