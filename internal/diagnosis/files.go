package diagnosis

var fileEntries []Entry
