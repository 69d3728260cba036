# The first process of a sandbox. Arguments: the descriptors of the variables, the report and the gate, then the command.
# It reports `!` once it runs, and waits for one byte from the gate. If the gate is closed instead, it exits.
# Standard input becomes a device of the sandbox: the owner of the host's device could change that by its descriptor.
# Then it sets the variables, reports `.`, runs the command, reaps orphans and reports the command's wait status.
open(my $variables, '<&=', shift @ARGV) && open(my $report, '>&=', shift @ARGV) && open(my $gate, '<&=', shift @ARGV)
    or die "init: $!\n";
syswrite $report, '!';
sysread($gate, my $go, 1) or exit 1;
close $gate;
open(STDIN, '<', '/dev/null') or exit 1;
%ENV = map { split(/=/, $_, 2) } split(/\0/, do { local $/; <$variables> } // '');
close $variables;
syswrite $report, '.';
my $child = fork;
if (!$child) {
    exec { $ARGV[0] } @ARGV if defined $child;
    my $missing = defined $child && $! == 2;
    print STDERR "$ARGV[0]: $!\n";
    exit($missing ? 127 : 126);
}
while ((my $gone = wait) > 0) {
    if ($gone == $child) { syswrite $report, $?; last }
}
