package diagnosis

var interfaceEntries = []Entry{}
