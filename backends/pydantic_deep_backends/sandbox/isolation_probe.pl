# Runs in a sandbox, attempts to break each guarantee of its isolation, and prints those that hold, one per line.
# Arguments: a file of the host, a port of the host's loopback or 0, the numbers of two denied system calls, and limits.
use Socket;
my ($canary, $port, $unshare, $keyctl, $processes, $memory, $file_size, $tmp) = @ARGV;
sub reads { open(my $file, '<', $_[0]) or return ''; local $/; scalar(<$file>) // '' }
sub fails { my $child = fork; if (!$child) { open(STDERR, '>', '/dev/null'); exit($_[0]->() ? 0 : 1) }
            waitpid $child, 0; $? != 0 }
my $status = reads('/proc/self/status');
my %kept = (
    'the environment is hidden' => join(' ', sort keys %ENV) eq 'PROBE' && length(reads('/proc/1/environ')) < 64,
    'the files of the host are hidden' => !grep({ -e } $canary, '/root', '/home', '/var', '/run', '/sys'),
    'the processes of the host are hidden' => scalar(() = glob('/proc/[0-9]*')) <= 2,
    'the system is read-only' => !grep({ open(my $f, '>', "$_/probe") } '/', '/usr', '/etc', '/dev', '/proc/sys/kernel'),
    'the user has no rights' => $> != 0 && $status =~ /^CapEff:\t0+$/m && $status =~ /^CapBnd:\t0+$/m
                                && $status =~ /^NoNewPrivs:\t1$/m,
    'system calls are filtered' => $status =~ /^Seccomp:\t2$/m && syscall($keyctl, 0, 0, 0) == -1 && $! == 1,
    'there are no new namespaces' => syscall($unshare, 0x10000000) == -1,
    'the size of files is limited' => fails(sub {
        open(my $file, '>', 'big'); seek($file, $file_size, 0); syswrite($file, 'x') }),
    'memory is limited' => fails(sub { my $block = 'x' x $memory; length $block }),
);
if ($port) {
    socket(my $socket, PF_INET, SOCK_STREAM, 0);
    $kept{'there is no network'} = !connect($socket, pack_sockaddr_in($port, INADDR_LOOPBACK));
}
my ($block, $full) = ('x' x $file_size, 0);
for my $number (0 .. $tmp / $file_size) {
    open(my $file, '>', "/tmp/$number") or last;
    $full = (syswrite($file, $block) // 0) < $file_size;
    last if $full;
}
$kept{'temporary files are limited'} = $full;
chmod 0600, '/dev/full';
$kept{'the input is no device of the host'} = join(':', (stat '/proc/self/fd/0')[0, 1]) eq join(':', (stat '/dev/null')[0, 1]);
open(my $made, '>', 'made');
my @children;
while (@children <= $processes) {
    my $child = fork // last;
    if (!$child) { sleep 60; exit }
    push @children, $child;
}
$kept{'processes are limited'} = @children < $processes;
kill 'KILL', @children;
print map { "$_\n" } grep { $kept{$_} } keys %kept;
