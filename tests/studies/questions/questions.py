"""Questions, and the words that a correct answer contains."""

from __future__ import annotations

from typing import NamedTuple


class Question(NamedTuple):
    text: str
    accepted: str  # a pattern of words


QUESTIONS = (
    # general knowledge
    Question("What is the capital of France?", r"Paris"),
    Question("What is the capital of Japan?", r"Tokyo"),
    Question("What is the capital of Germany?", r"Berlin"),
    Question("What is the capital of Egypt?", r"Cairo"),
    Question("What is the capital of Russia?", r"Moscow"),
    Question("What is the capital of Australia?", r"Canberra"),
    Question("What is the largest planet in our solar system?", r"Jupiter"),
    Question("Which planet is closest to the Sun?", r"Mercury"),
    Question("Which planet is known as the Red Planet?", r"Mars"),
    Question("What is the largest ocean on Earth?", r"Pacific"),
    Question("What is the longest river in Africa?", r"Nile"),
    Question("What is the tallest mountain in the world?", r"Everest"),
    Question("Who wrote Romeo and Juliet?", r"Shakespeare"),
    Question("Who painted the Mona Lisa?", r"Leonardo|da Vinci"),
    Question("Who developed the theory of relativity?", r"Einstein"),
    Question("What is the chemical symbol for water?", r"H2O|H₂O"),
    Question("What is the chemical symbol for gold?", r"Au"),
    Question("What is the boiling point of water in degrees Celsius?", r"100"),
    Question("How many days are there in a week?", r"7|seven"),
    Question("How many months are there in a year?", r"12|twelve"),
    Question("How many legs does a dog have?", r"4|four"),
    Question("How many sides does a triangle have?", r"3|three"),
    Question("What is the name of our galaxy?", r"Milky Way"),
    Question("What language is spoken in Brazil?", r"Portuguese"),
    Question("What is the currency of Japan?", r"yen"),
    Question("In which country are the pyramids of Giza?", r"Egypt"),
    Question("Which organ pumps blood through the body?", r"heart"),
    Question("Who was the first person to walk on the Moon?", r"Armstrong"),
    Question("In which year did World War II end?", r"1945"),
    Question("What do bees make?", r"honey"),
    # arithmetic
    Question("What is 2 + 2?", r"4|four"),
    Question("What is 10 divided by 2?", r"5|five"),
    Question("What is 7 + 6?", r"13|thirteen"),
    Question("What is 9 times 9?", r"81"),
    # language
    Question("How many letters are in the English alphabet?", r"26|twenty-six"),
    Question("What is the opposite of hot?", r"cold|cool|chilly"),
    Question("What is the opposite of day?", r"night"),
    Question("What is the plural of child?", r"children"),
    Question("What is the plural of mouse?", r"mice"),
    Question("What is the past tense of go?", r"went"),
)
