package diagnosis

var networkEntries = []Entry{}
